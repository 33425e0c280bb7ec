"""Proves that a write or read reaches the leader wherever it is, and that no write is doubled."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.forwarding import Forwarding
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, TopicId
from penstock.records.batch import build_batch, decode_records
from penstock.records.record import Record
from penstock.replication.positions import Position
from penstock.server import SystemClock
from tests.unit.lone_node import NODE, LoneNode

FRONT = BrokerId(7)
NOT_LEADER = Refused(Reason.NOT_LEADER_OR_FOLLOWER, "somebody else leads")
LOST = Refused(Reason.REQUEST_TIMED_OUT, "the connection was lost")

Handler = Callable[[BrokerId, bytes], Awaitable[bytes]]
# What happens to one call to the leader: nothing, a refusal instead of it, or of its answer.
Fate = tuple[str, Refused | None]
FINE: Fate = ("answered", None)


class OtherNode:
    """A node that leads nothing, in front of one that leads everything."""

    def __init__(self, leader: LoneNode) -> None:
        self._leader = leader
        self._handlers: dict[str, Handler] = {}
        # One for each call, in order; after them all goes well.
        self.fates: list[Fate] = []
        self.calls = 0
        self.leaderless_for = 0
        self.forwarding = self._make(NODE, leader.services.leaderships, self)
        nobody = SimpleNamespace(serve=lambda method, handler: None, call=self.call)
        self.front = self._make(FRONT, self, nobody)

    def _make(self, own: BrokerId, leaderships: Any, peers: Any) -> Forwarding:
        services = self._leader.services
        return Forwarding(
            own=own,
            topics=services.topics,
            partitions=services.partitions,
            leaderships=leaderships,
            produce=services.produce,
            fetch=services.fetch,
            offsets=services.offsets,
            peers=peers,
            clock=SystemClock(),
        )

    # Peers

    def serve(self, method: str, handler: Handler) -> None:
        self._handlers[method] = handler

    async def call(self, node: BrokerId, method: str, payload: bytes, timeout_s: float) -> bytes:
        assert node == NODE
        assert timeout_s > 0
        self.calls += 1
        fate, refused = self.fates.pop(0) if self.fates else FINE
        if fate == "refused":
            assert refused is not None
            raise refused
        answer = await self._handlers[method](FRONT, payload)
        if refused is not None:
            raise refused
        return answer

    # Leaderships

    def reachable_leader(self, topic_id: TopicId, partition: int) -> Any:
        if self.leaderless_for:
            self.leaderless_for -= 1
            return None
        return SimpleNamespace(id=NODE)

    async def wait_for_leaders(self, keys: Any) -> None:
        await asyncio.sleep(0)

    # What tests use

    @property
    def topic_id(self) -> TopicId:
        topic = self._leader.topics.find("events")
        assert topic is not None
        return topic.topic_id

    async def publish(
        self,
        value: bytes,
        sequence: int = 0,
        *,
        partition: int = 0,
        within_s: float = 30.0,
        expected: int = -1,
    ) -> int:
        batch = build_batch(
            [Record(value=value, timestamp_ms=1)],
            producer_id=5,
            producer_epoch=0,
            base_sequence=sequence,
        )
        return await self.front.publish(
            self.topic_id, partition, batch, deadline(within_s), expected
        )

    async def values(self, offset: int = 0) -> list[bytes | None]:
        found = await self.front.read(
            self.topic_id, 0, offset, bytes_max=1 << 20, wait_s=0.0, deadline=deadline()
        )
        values, rest = [], memoryview(found.batches)
        while len(rest):
            records = list(decode_records(rest))
            values += [record.value for record in records]
            rest = rest[12 + int.from_bytes(rest[8:12]) :]
        return values


def deadline(within_s: float = 30.0) -> float:
    return SystemClock().monotonic() + within_s


@asynccontextmanager
async def nodes(path: Path) -> AsyncIterator[OtherNode]:
    leader = await LoneNode.start(path)
    try:
        await leader.create("events", partitions=1)
        yield OtherNode(leader)
    finally:
        await leader.stop()


async def test_a_write_and_a_read_reach_the_leader_on_another_node(tmp_path: Path) -> None:
    async with nodes(tmp_path) as other:
        assert await other.publish(b"a", 0) == 0
        assert await other.publish(b"b", 1) == 1
        assert await other.values() == [b"a", b"b"]
        found = await other.front.find(other.topic_id, 0, Position.LATEST, deadline())
        assert found.offset == 2


async def test_the_leader_itself_needs_no_other_node(tmp_path: Path) -> None:
    async with nodes(tmp_path) as other:
        batch = build_batch(
            [Record(value=b"a", timestamp_ms=1)], producer_id=5, producer_epoch=0, base_sequence=0
        )
        place = other.topic_id, 0
        assert await other.forwarding.publish(*place, batch, deadline()) == 0
        assert await other.forwarding.publish(*place, batch, deadline()) == 0
        assert other.calls == 0
        assert await other.values() == [b"a"]


async def test_an_answer_that_gets_lost_doubles_nothing(tmp_path: Path) -> None:
    async with nodes(tmp_path) as other:
        other.fates = [("answered", LOST), ("answered", NOT_LEADER), FINE]
        assert await other.publish(b"a", 0) == 0
        assert other.calls == 3
        assert await other.values() == [b"a"]


async def test_a_write_that_expects_another_offset_is_refused(tmp_path: Path) -> None:
    async with nodes(tmp_path) as other:
        assert await other.publish(b"a", 0, expected=0) == 0
        for wrong in (0, 2):
            with pytest.raises(Refused) as caught:
                await other.publish(b"b", 1, expected=wrong)
            assert caught.value.reason is Reason.OFFSET_NOT_EXPECTED
        # The sequence is still free, and a repeated batch is known before its offset is compared.
        other.fates = [("answered", LOST), FINE]
        assert await other.publish(b"b", 1, expected=1) == 1
        assert await other.values() == [b"a", b"b"]


async def test_a_write_waits_for_the_next_leader(tmp_path: Path) -> None:
    async with nodes(tmp_path) as other:
        other.leaderless_for = 3
        other.fates = [("refused", NOT_LEADER)]
        assert await other.publish(b"a", 0) == 0
        assert await other.values() == [b"a"]


async def test_a_write_whose_fate_is_unknown_says_so(tmp_path: Path) -> None:
    async with nodes(tmp_path) as other:
        other.fates = [("answered", NOT_LEADER)] * 100
        with pytest.raises(Refused) as caught:
            await other.publish(b"a", 0, within_s=0.1)
        assert caught.value.reason is Reason.REQUEST_TIMED_OUT
        assert "not known" in caught.value.detail


async def test_a_write_that_was_surely_refused_keeps_its_reason(tmp_path: Path) -> None:
    async with nodes(tmp_path) as other:
        other.fates = [("refused", Refused(Reason.NOT_ENOUGH_REPLICAS, "too few"))] * 100
        with pytest.raises(Refused) as caught:
            await other.publish(b"a", 0, within_s=0.1)
        assert caught.value.reason is Reason.NOT_ENOUGH_REPLICAS
        other.fates = []
        assert await other.publish(b"b", 0) == 0


@pytest.mark.parametrize(
    ("sequence", "partition", "reason"),
    [
        (9, 0, Reason.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 4, Reason.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_what_no_other_leader_would_take_is_refused_at_once(
    tmp_path: Path, sequence: int, partition: int, reason: Reason
) -> None:
    async with nodes(tmp_path) as other:
        await other.publish(b"a", 0)
        with pytest.raises(Refused) as caught:
            await other.publish(b"b", sequence, partition=partition)
        assert caught.value.reason is reason
        assert other.calls <= 2


async def test_a_read_names_the_offsets_that_there_are(tmp_path: Path) -> None:
    async with nodes(tmp_path) as other:
        await other.publish(b"a", 0)
        with pytest.raises(Refused) as caught:
            await other.values(offset=7)
        assert caught.value.reason is Reason.OFFSET_OUT_OF_RANGE
        assert caught.value.detail == "The partition holds offsets from 0 to 1, not 7."


async def test_a_read_waits_for_what_comes(tmp_path: Path) -> None:
    async with nodes(tmp_path) as other:
        reading = asyncio.ensure_future(
            other.front.read(
                other.topic_id, 0, 0, bytes_max=1 << 20, wait_s=20.0, deadline=deadline()
            )
        )
        await asyncio.sleep(0)
        await other.publish(b"a", 0)
        found = await reading
        assert (found.log_start_offset, found.high_watermark) == (0, 1)
        assert [record.value for record in decode_records(found.batches)] == [b"a"]
