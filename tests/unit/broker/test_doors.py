"""Proves that the desk answers what doors ask, here or on the node that must."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.doors import PASSED_ON, calls
from penstock.broker.doors.desk import Desk
from penstock.broker.doors.table import METHODS, make_desk
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId
from penstock.records.batch import build_batch, decode_records
from penstock.records.record import Record
from tests.unit.lone_node import NODE, LoneNode

OTHER = BrokerId(7)


class Peers:
    """Brings calls of a second desk to the first, unless it shall fail."""

    def __init__(self) -> None:
        self.desk: Desk | None = None
        self.refusals: list[Refused] = []
        self.calls = 0

    def serve(self, method: str, handler: Any) -> None: ...

    async def call(self, node: BrokerId, method: str, payload: bytes, timeout_s: float) -> bytes:
        assert (node, method) == (NODE, PASSED_ON)
        self.calls += 1
        if self.refusals:
            raise self.refusals.pop(0)
        assert self.desk is not None
        return await self.desk.serve_passed_on(payload)


class Rig:
    def __init__(self, node: LoneNode) -> None:
        self.node = node
        self.peers = Peers()
        self.peers.desk = make_desk(NODE, node.services, self.peers)
        # A node that coordinates nothing itself.
        self.other = make_desk(OTHER, node.services, self.peers)

    async def ask(self, call: calls.Call[calls.A], desk: Desk | None = None) -> calls.A:
        """As a door does, through bytes."""
        answering = desk or self.peers.desk
        assert answering is not None
        name = type(call).__name__
        return calls.decode_answer(call, await answering.serve(name, calls.encode(call)))

    async def refusal(self, call: calls.Call[Any], desk: Desk | None = None) -> Reason:
        with pytest.raises(Refused) as caught:
            await self.ask(call, desk)
        return caught.value.reason


@asynccontextmanager
async def running(path: Path, **settings: str) -> AsyncIterator[Rig]:
    node = await LoneNode.start(path, **settings)
    try:
        yield Rig(node)
    finally:
        await node.stop()


def test_every_call_has_a_method() -> None:
    assert {method.call for method in METHODS} == set(calls.CALLS.values())


def test_calls_and_answers_survive_the_way() -> None:
    call = calls.CreateTopic(name="t", settings={"a": "b"})
    assert calls.decode_call("CreateTopic", calls.encode(call)) == call
    with pytest.raises(Refused):
        calls.decode_call("NoSuchCall", b"")
    with pytest.raises(Refused):
        calls.decode_call("CreateTopic", b"\xc1")
    with pytest.raises(Refused):
        calls.decode_answer(call, b"\x91\x01")


async def test_records_are_written_and_read(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        topic = await rig.ask(calls.FindTopic(name="events", may_create=True))
        assert (topic.partitions, topic.message_bytes_max) == (1, 1_048_588)
        identity = await rig.ask(calls.Identify())
        batch = build_batch(
            [Record(value=b"a", timestamp_ms=5)],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=0,
        )
        place = {"topic_id": topic.topic_id, "partition": 0}
        wanted = calls.Publish(**place, batch=batch, wait_s=10.0)
        assert (await rig.ask(wanted)).base_offset == 0
        assert (await rig.ask(wanted)).base_offset == 0
        found = await rig.ask(calls.Read(**place, offset=0, bytes_max=1 << 20))
        assert [record.value for record in decode_records(found.batches)] == [b"a"]
        assert (found.log_start_offset, found.high_watermark) == (0, 1)
        assert (await rig.ask(calls.FindOffset(**place, timestamp_ms=5))).offset == 0
        assert (await rig.ask(calls.FindOffset(**place, timestamp_ms=-1))).offset == 1


async def test_topics_are_made_only_if_the_settings_say_so(tmp_path: Path) -> None:
    async with running(tmp_path, auto_create_topics_enable="false") as rig:
        missing = calls.FindTopic(name="events", may_create=True)
        assert await rig.refusal(missing) is Reason.UNKNOWN_TOPIC_OR_PARTITION
        bad = calls.FindTopic(name="a/b", may_create=True)
        assert await rig.refusal(bad) is Reason.INVALID_TOPIC


async def test_topics_and_settings_are_administered(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        new = calls.CreateTopic(name="t", partitions=2, settings={"retention.ms": "5"})
        assert (await rig.ask(new)).partitions == 2
        assert await rig.refusal(new) is Reason.TOPIC_ALREADY_EXISTS
        assert (await rig.ask(calls.GrowTopic(name="t", partitions=3))).partitions == 3
        details = await rig.ask(calls.DescribeTopic(name="t"))
        assert details.settings == {"retention.ms": "5"}
        ends = [(each.leader, each.start_offset, each.end_offset) for each in details.partitions]
        assert ends == [(NODE, 0, 0)] * 3
        change = calls.ChangeSettings(kind="topic", name="t", changes={"retention.ms": None})
        await rig.ask(change)
        listed = await rig.ask(calls.DescribeSettings(kind="topic", name="t"))
        (retention,) = [each for each in listed.settings if each.name == "retention.ms"]
        assert retention.source == "default"
        unknown = calls.DescribeSettings(kind="planet", name="t")
        assert await rig.refusal(unknown) is Reason.INVALID_REQUEST
        assert [each.name for each in (await rig.ask(calls.ListTopics())).topics] == ["t"]
        await rig.ask(calls.DeleteTopic(name="t"))
        gone = calls.DescribeTopic(name="t")
        assert await rig.refusal(gone) is Reason.UNKNOWN_TOPIC_OR_PARTITION


async def test_calls_about_a_group_go_to_its_coordinator(tmp_path: Path) -> None:
    async with running(tmp_path, offsets_topic_num_partitions="2") as rig:
        await rig.node.create("t", partitions=1)
        offset = calls.GroupOffset(topic="t", partition=0, offset=0)
        commit = calls.CommitGroupOffsets(group_id="g", offsets=[offset])
        # What may pass is tried again.
        rig.peers.refusals = [Refused(Reason.NOT_COORDINATOR), Refused(Reason.REQUEST_TIMED_OUT)]
        await rig.ask(commit, rig.other)
        assert rig.peers.calls == 3
        found = await rig.ask(calls.ReadGroupOffsets(group_id="g"), rig.other)
        assert found.offsets == [offset]
        assert (await rig.ask(calls.DescribeGroup(group_id="g"), rig.other)).members == []
        groups = await rig.ask(calls.ListGroups(), rig.other)
        assert [each.group_id for each in groups.groups] == ["g"]
        rig.peers.refusals = [Refused(Reason.LEADER_NOT_AVAILABLE)]
        assert (await rig.ask(calls.ListGroups(), rig.other)).unreached == [NODE]
        bad = calls.GroupOffset(topic="none", partition=0, offset=0)
        asked = rig.peers.calls
        bad_commit = calls.CommitGroupOffsets(group_id="g", offsets=[bad])
        assert await rig.refusal(bad_commit, rig.other) is Reason.UNKNOWN_TOPIC_OR_PARTITION
        # What the coordinator does not know does not pass.
        assert rig.peers.calls == asked + 1
        await rig.ask(calls.DeleteGroup(group_id="g"), rig.other)
        missing = calls.DescribeGroup(group_id="g")
        assert await rig.refusal(missing) is Reason.GROUP_ID_NOT_FOUND


async def test_nodes_are_described(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.node.create("t", partitions=3)
        (node,) = (await rig.ask(calls.DescribeCluster())).nodes
        assert (node.node, node.is_alive, node.is_controller) == (NODE, True, True)
        status = await rig.ask(calls.DescribeNode())
        assert status.unready == ""
        copies = await rig.ask(calls.DescribeCopies())
        assert (copies.node, copies.late, copies.named) == (NODE, 0, [])


async def test_a_desk_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    empty = Desk(own=NODE, services=SimpleNamespace(), peers=Peers(), methods=())  # type: ignore[arg-type]
    for payload in (b"", b"\x04Nope", b"\x09ListTopics"):
        with pytest.raises(Refused):
            await empty.serve_passed_on(payload)
    with pytest.raises(Refused):
        await empty.serve("ListTopics", calls.encode(calls.ListTopics()))
