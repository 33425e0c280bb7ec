"""Proves that a scrape says what a node counted and holds, in short turns of the loop."""

import asyncio
import time
from pathlib import Path

import pytest

from penstock.broker.doors import calls, monitoring
from penstock.broker.groups import CommitOffsets, OffsetToCommit
from penstock.model.errors import Reason
from penstock.model.ids import GroupId, TopicName
from penstock.observe.families import FAMILIES
from penstock.records.batch import build_batch
from penstock.records.record import Record
from tests.unit.broker.test_doors import Rig, running
from tests.unit.lone_node import NODE

Found = dict[tuple[str, ...], float]


async def scraped(rig: Rig) -> Found:
    answer = await rig.ask(calls.CollectMetrics())
    assert answer.samples.keys() <= FAMILIES.keys()
    return {
        (name, *labels): value
        for name, samples in answer.samples.items()
        for labels, value in samples
        if not isinstance(value, list)
    }


async def write(rig: Rig, topic: str, *times_ms: int) -> None:
    found = await rig.ask(calls.FindTopic(name=topic))
    for at_ms in times_ms:
        identity = await rig.ask(calls.Identify())
        batch = build_batch(
            [Record(value=b"v", timestamp_ms=at_ms)],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=0,
        )
        call = calls.Publish(topic_id=found.topic_id, partition=0, batch=batch, wait_s=5.0)
        await rig.ask(call)


async def commit(rig: Rig, group: str, topic: str, offset: int) -> None:
    await rig.node.groups.find_coordinator(GroupId(group))
    one = OffsetToCommit(TopicName(topic), 0, offset, -1, "")
    outcomes = await rig.node.groups.commit_offsets(
        CommitOffsets(group_id=GroupId(group), offsets=(one,))
    )
    assert outcomes == [None]


async def test_traffic_partitions_and_the_lag_of_a_group_that_only_commits(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.node.create("t", partitions=1)
        now_ms = rig.node.services.clock.now_ms()
        await write(rig, "t", now_ms - 90_000, now_ms - 60_000, now_ms)
        await commit(rig, "g", "t", 1)
        await commit(rig, "done", "t", 3)
        found = await scraped(rig)
        assert found["penstock_topic_records_in_total", "t"] == 3
        assert found["penstock_topic_bytes_in_total", "t"] > 180
        assert found["penstock_partitions_under_replicated",] == 0
        assert found["penstock_groups",] == 2
        assert found["penstock_group_lag_records", "g", "t"] == 2
        assert 60 <= found["penstock_group_lag_seconds", "g", "t"] < 90
        assert found["penstock_group_lag_records", "done", "t"] == 0
        assert found["penstock_group_lag_seconds", "done", "t"] == 0
        topic = await rig.ask(calls.FindTopic(name="t"))
        read = calls.Read(topic_id=topic.topic_id, partition=0, offset=1, bytes_max=1 << 20)
        await rig.ask(read)
        await rig.ask(calls.DeleteTopic(name="t"))
        assert ("penstock_topic_records_in_total", "t") not in await scraped(rig)


async def test_what_readers_get_is_counted(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.node.create("t", partitions=1)
        await write(rig, "t", *range(1, 6))
        topic = await rig.ask(calls.FindTopic(name="t"))
        read = calls.Read(topic_id=topic.topic_id, partition=0, offset=2, bytes_max=1 << 20)
        batches = await rig.ask(read)
        found = await scraped(rig)
        assert found["penstock_topic_records_out_total", "t"] == 3
        assert found["penstock_topic_bytes_out_total", "t"] == len(batches.batches)


async def test_more_groups_than_fit_are_counted_as_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring, "GROUP_SERIES_MAX", 2)
    async with running(tmp_path) as rig:
        await rig.node.create("t", partitions=1)
        for number in range(5):
            await commit(rig, f"g{number}", "t", 0)
        found = await scraped(rig)
        shown = [key for key in found if key[0] == "penstock_group_lag_records"]
        assert len(shown) == 2
        assert found["penstock_series_left_out", "penstock_group"] == 3


async def test_places_of_partitions_that_are_elsewhere_are_asked_for_there(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.node.create("t", partitions=1)
        await write(rig, "t", 7_000, 8_000)
        places = [
            calls.Place(topic="t", partition=0, offset=1, with_time=True),
            calls.Place(topic="t", partition=9, offset=0, with_time=True),
        ]
        known, unknown = (await rig.other.ask(NODE, calls.FindPlaces(places=places), 5.0)).places
        assert (known.end_offset, known.timestamp_ms) == (2, 8_000)
        assert (unknown.end_offset, unknown.timestamp_ms) == (-1, -1)


async def test_a_node_without_counters_says_so(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        assert rig.peers.desk is not None
        object.__setattr__(rig.node.services, "counters", None)
        assert await rig.refusal(calls.CollectMetrics()) is Reason.POLICY_VIOLATION


async def test_a_scrape_of_many_topics_leaves_the_loop_to_others(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.node.create(*(f"t{number}" for number in range(100)), partitions=2)
        counters = rig.node.services.counters
        assert counters is not None
        for number in range(100_000):
            counters.topics.of(f"ghost-{number}")
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count_turns())
        began = time.process_time()
        await scraped(rig)
        used_s = time.process_time() - began
        counting.cancel()
        # A turn lasts 2 ms; machines that are busy count more time than there was.
        assert turns >= used_s / 0.05
