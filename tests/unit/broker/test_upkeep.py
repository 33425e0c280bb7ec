"""Proves that upkeep reaches every partition, finds damage, and never outlives its stop."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.broker.upkeep import (
    CHECK_INTERVAL,
    CLEANER_BACKOFF,
    CLEANER_ENABLED,
    PRODUCER_EXPIRY,
    Upkeep,
)
from penstock.cluster.changes import BrokerConfigChanged, Change
from penstock.model.topic_config import TopicConfig
from penstock.replication.replica import Replica
from penstock.storage.compaction import Compactor
from penstock.storage.log import Log
from tests.unit.broker.partition_rig import Node, running
from tests.unit.replication.rig import TOPIC, TOPIC_ID, batch, read_values, run
from tests.waiting import until

HOUR_MS = 3_600_000


class Settings:
    def __init__(self) -> None:
        self.ints = {CHECK_INTERVAL: 20, PRODUCER_EXPIRY: 1_000, CLEANER_BACKOFF: HOUR_MS}
        self.bools = {CLEANER_ENABLED: True}
        self._listeners: list[Callable[[Change], None]] = []

    def int_setting(self, name: str) -> int:
        return self.ints[name]

    def bool_setting(self, name: str) -> bool:
        return self.bools[name]

    def on_change(self, listener: Callable[[Change], None]) -> None:
        self._listeners.append(listener)

    def change(self, name: str, value: int) -> None:
        self.ints[name] = value
        for listener in self._listeners:
            listener(BrokerConfigChanged(frozenset({name})))


def upkeep_of(node: Node, settings: Settings | None = None) -> Upkeep:
    return Upkeep(
        partitions=node.partitions,
        cluster=settings or Settings(),
        clock=node.clock,
        scrub_period_s=3600.0,
        first_round_s=0.01,
    )


async def test_old_segments_go_by_themselves(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        config = TopicConfig(segment_bytes=200, retention_bytes=400)
        await node.create(TOPIC, TOPIC_ID, range(3), config)
        upkeep = upkeep_of(node)
        upkeep.start()
        for replica in node.partitions.all():
            for _ in range(10):
                replica.append(batch(b"x" * 100))
                await replica.committed()
        await until(lambda: all(r.log_start_offset > 0 for r in node.partitions.all()))
        await upkeep.stop()


async def test_compaction_follows_the_settings(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        config = TopicConfig(cleanup_compact=True, cleanup_delete=False, segment_bytes=300)
        replica = await node.replica(config)
        for number in range(40):
            replica.append(batch(b"%d" % number))
            await replica.committed()
        settings = Settings()
        settings.bools[CLEANER_ENABLED] = False
        await upkeep_of(node, settings).maintain_all()
        assert len(read_values(replica)) == 40
        await upkeep_of(node).maintain_all()
        left = read_values(replica)
        assert len(left) < 20
        assert left[-1] == b"39"


async def compacted(node: Node, records: int = 0, **changes: int) -> Replica:
    config = TopicConfig(cleanup_compact=True, cleanup_delete=False, **changes)
    replica = await node.replica(config)
    await write_often(replica, records)
    return replica


async def write_often(replica: Replica, records: int) -> None:
    """All with the same key."""
    for number in range(records):
        replica.append(batch(b"%d" % number))
        await replica.committed()


async def test_compaction_does_not_wait_for_the_next_round_of_retention(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        settings = Settings()
        settings.ints |= {CHECK_INTERVAL: HOUR_MS, CLEANER_BACKOFF: 20}
        replica = await compacted(node, segment_bytes=300)
        upkeep = upkeep_of(node, settings)
        upkeep.start()
        await write_often(replica, 40)
        await until(lambda: len(read_values(replica)) < 20)
        await write_often(replica, 40)
        await until(lambda: len(read_values(replica)) < 20)
        await upkeep.stop()


def test_a_shorter_pause_of_compaction_acts_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            settings = Settings()
            settings.ints[CHECK_INTERVAL] = HOUR_MS
            upkeep = upkeep_of(node, settings)
            rounds = 0
            maintain_all = upkeep.maintain_all

            async def counted() -> None:
                nonlocal rounds
                await maintain_all()
                rounds += 1

            upkeep.maintain_all = counted  # type: ignore[method-assign]
            upkeep.start()
            await until(lambda: rounds)
            replica = await compacted(node, 40, segment_bytes=300)
            assert len(read_values(replica)) == 40
            settings.change(CLEANER_BACKOFF, 20)
            await until(lambda: len(read_values(replica)) < 20)
            assert rounds == 1
            await upkeep.stop()

    run(scenario)


async def test_no_record_stays_uncompacted_for_longer_than_its_topic_allows(tmp_path: Path) -> None:
    """Not even in the segment that is written to, of which little is dirty."""
    async with running(tmp_path) as node:
        replica = await compacted(node, 10, max_compaction_lag_ms=60_000)
        upkeep = upkeep_of(node)
        await upkeep.clean_all()
        assert len(read_values(replica)) == 10
        node.clock.ms += 60_001
        await upkeep.clean_all()
        assert read_values(replica) == [b"9"]


def test_segments_are_looked_at_only_if_something_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        looks = 0
        due_at = Compactor.due_at

        def counted(compactor: Compactor, end: int) -> int | None:
            nonlocal looks
            looks += 1
            return due_at(compactor, end)

        monkeypatch.setattr(Compactor, "due_at", counted)
        async with running(tmp_path) as node:
            upkeep = upkeep_of(node)
            replica = await compacted(node, 40, segment_bytes=300)
            await upkeep.clean_all()
            await upkeep.clean_all()
            before = looks
            replica.append(batch(b"x"))
            await replica.committed()
            for _ in range(5):
                node.clock.ms += 1_000
                await upkeep.clean_all()
            assert looks == before, "the segments are the same"
            await write_often(replica, 10)
            await upkeep.clean_all()
            assert looks > before

    run(scenario)


def test_a_compaction_that_fails_is_not_tried_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        tries = 0

        def fail(*_: object, **__: object) -> None:
            nonlocal tries
            tries += 1
            raise OSError("no room")

        async with running(tmp_path) as node:
            replica = await compacted(node, 40, segment_bytes=300)
            upkeep = upkeep_of(node)
            with monkeypatch.context() as patched:
                patched.setattr(Log, "compact", fail)
                for _ in range(5):
                    await upkeep.clean_all()
            assert tries == 1
            await upkeep.maintain_all()
            assert len(read_values(replica)) < 20

    run(scenario)


async def test_idle_producers_are_forgotten(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        replica = await node.replica()
        replica.append(batch(b"x", producer_id=1, epoch=0, sequence=0))
        await replica.committed()
        await upkeep_of(node).maintain_all()
        assert len(list(replica.producers())) == 1
        node.clock.ms += 1_001
        await upkeep_of(node).maintain_all()
        assert list(replica.producers()) == []


async def test_a_flipped_bit_in_an_old_segment_stops_its_partition_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(2), TopicConfig(segment_bytes=200))
        damaged, sound = node.partitions.all()
        for replica in (damaged, sound):
            for _ in range(6):
                replica.append(batch(b"x" * 100))
                await replica.committed()
        segment = min(node.directory.partition_directory(TOPIC_ID, 0).glob("*.log"))
        content = bytearray(segment.read_bytes())
        content[-10] ^= 4
        segment.write_bytes(content)
        upkeep = upkeep_of(node)
        upkeep.start()
        await until(lambda: damaged.stopped_because is not None)
        assert segment.name in str(damaged.stopped_because)
        await upkeep.stop()
        assert sound.stopped_because is None
        assert len(read_values(sound)) == 6


async def test_a_scrub_that_pauses_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(TOPIC, TOPIC_ID, range(3), TopicConfig(segment_bytes=200))
        for replica in node.partitions.all():
            replica.append(batch(b"x" * 100))
            await replica.committed()
        upkeep = upkeep_of(node)
        pauses: list[float] = []

        async def pause(seconds: float) -> None:
            pauses.append(seconds)
            await asyncio.Event().wait()

        upkeep._scrubbing._sleep = pause
        upkeep.start()
        await until(lambda: pauses)
        await asyncio.wait_for(upkeep.stop(), 1.0)


async def test_stopping_at_once_is_quick(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.replica()
        upkeep = upkeep_of(node)
        upkeep.start()
        await upkeep.stop()
        never_started = upkeep_of(node)
        await never_started.stop()
