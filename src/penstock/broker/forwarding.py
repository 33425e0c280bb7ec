"""Writes to and reads from any partition of the cluster, here or on the node that leads it.

A client of Kafka's protocol looks for the leader itself. Everyone else asks any node, and that
node passes the request on. When leadership moves meanwhile, the request follows it, until its
deadline. A write can be repeated because its batch carries a producer id and a sequence: a leader
that has the batch already answers with the offset that it got the first time.

To write from inside the broker:

    batch = build_batch(records, producer_id=id, producer_epoch=epoch, base_sequence=sequence)
    deadline = clock.monotonic() + 30.0
    base_offset = await forwarding.publish(topic_id, partition, batch, deadline)

It returns when the batch is as safe as for a producer with acks=all. It raises Refused otherwise:
with REQUEST_TIMED_OUT if nobody knows whether the batch was written, and with any other reason if
it was not. After the former, send the same batch again or use another producer id; after the
latter, the sequence is still free. Sequences of one producer in one partition must follow each
other without gaps, so send the next batch when the one before is answered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from struct import Struct, error
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from penstock.broker.fetch import Fetch, FetchQuery, Reading
from penstock.broker.leaderships import Leaderships
from penstock.broker.offsets import FoundOffset, Offsets
from penstock.broker.partitions import Partitions
from penstock.broker.produce import ACKS_ALL, Produce, Production
from penstock.broker.readers import Wanted
from penstock.broker.share_coordinators import Peers
from penstock.broker.topics import Topic, Topics
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.file_ranges import FileRange
from penstock.model.ids import (
    COPIERS_FROM,
    BrokerId,
    PartitionId,
    PartitionIndex,
    TopicId,
    TopicName,
)
from penstock.records.batch import peek_header

PUBLISH: Final = "forwarding.publish"
PUBLISH_AT: Final = "forwarding.publish_at"
READ: Final = "forwarding.read"
FIND: Final = "forwarding.find"
# A node that does not answer for so long may have lost its leadership: it is looked for again.
ATTEMPT_S_MAX: Final = 3.0
# Between two attempts: the first follows soon, later ones wait longer each time.
PAUSE_S_MIN: Final = 0.01
PAUSE_S_MAX: Final = 0.25
# What an answer may take beyond the time that it was asked to wait for records.
READ_GRACE_S: Final = 2.0
# Another leader, or the same one a moment later, may accept what was refused for these reasons.
PASSING: Final = frozenset(
    {
        Reason.NOT_LEADER_OR_FOLLOWER,
        Reason.LEADER_NOT_AVAILABLE,
        Reason.NOT_ENOUGH_REPLICAS,
        Reason.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Reason.OFFSET_NOT_AVAILABLE,
        Reason.FENCED_LEADER_EPOCH,
        Reason.UNKNOWN_LEADER_EPOCH,
        Reason.REQUEST_TIMED_OUT,
        Reason.STORAGE_ERROR,
        Reason.THROTTLED,
        # This node knows the topic: the other one has not heard of it yet.
        Reason.UNKNOWN_TOPIC_ID,
        Reason.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
# After these, what was sent may be in the log all the same. A leader that steps down gives the
# first one as well for what it has appended and can't commit any more.
UNCERTAIN: Final = frozenset(
    {
        Reason.NOT_LEADER_OR_FOLLOWER,
        Reason.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Reason.REQUEST_TIMED_OUT,
        Reason.STORAGE_ERROR,
    }
)

_PLACE: Final = Struct(">16si")
_WAIT: Final = Struct(">d")
_OFFSET: Final = Struct(">q")
_READ: Final = Struct(">qid")
_POSITIONS: Final = Struct(">qq")
_FOUND: Final = Struct(">qqi")

T = TypeVar("T")


class ReadAnswer(NamedTuple):
    """Whole batches as they lie in the log, and where the partition begins and ends."""

    batches: bytes
    log_start_offset: int
    high_watermark: int


class Attempts:
    """One request on its way: how long it may take, and what is known of its fate."""

    __slots__ = ("_clock", "_passing", "_pause_s", "deadline", "is_uncertain")

    def __init__(
        self, clock: Clock, deadline: float, passing: Collection[Reason] = PASSING
    ) -> None:
        self._clock = clock
        # In seconds of the monotonic clock.
        self.deadline = deadline
        self._passing = passing
        self._pause_s = PAUSE_S_MIN
        self.is_uncertain = False

    @property
    def left_s(self) -> float:
        return self.deadline - self._clock.monotonic()

    async def after(self, refused: Refused) -> None:
        """Returns when it is time to try again; raises if there will be no further attempt."""
        if refused.reason not in self._passing or self.left_s <= self._pause_s:
            raise refused
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)


class Forwarding:
    def __init__(
        self,
        *,
        own: BrokerId,
        topics: Topics,
        partitions: Partitions,
        leaderships: Leaderships,
        produce: Produce,
        fetch: Fetch,
        offsets: Offsets,
        peers: Peers,
        clock: Clock,
    ) -> None:
        self._own = own
        self._topics = topics
        self._partitions = partitions
        self._leaderships = leaderships
        self._produce = produce
        self._fetch = fetch
        self._offsets = offsets
        self._peers = peers
        self._clock = clock
        peers.serve(PUBLISH, self._serve_publish)
        peers.serve(PUBLISH_AT, self._serve_publish_at)
        peers.serve(READ, self._serve_read)
        peers.serve(FIND, self._serve_find)

    # Asking

    async def publish(
        self,
        topic_id: TopicId,
        partition: int,
        batch: bytes | memoryview,
        deadline: float,
        expected: int = -1,
    ) -> int:
        """The offset of the first record, once the batch is safe; see the top of this file.

        `deadline` is in seconds of the monotonic clock. With an expected offset, the batch is
        refused with OFFSET_NOT_EXPECTED if it can't get that one.
        """
        assert peek_header(batch).producer_id >= 0, "without a producer it can't be repeated"
        attempts = Attempts(self._clock, deadline)

        async def here() -> int:
            return await self._append(topic_id, partition, batch, deadline, expected)

        async def there(node: BrokerId) -> int:
            wait_s = _bounded(attempts.left_s)
            asked = _pack_place(topic_id, partition) + _WAIT.pack(wait_s)
            method = PUBLISH
            if expected >= 0:
                method, asked = PUBLISH_AT, asked + _OFFSET.pack(expected)
            answer = await self._peers.call(node, method, asked + batch, wait_s + READ_GRACE_S)
            return int(_unpacked(_OFFSET, answer)[0])

        try:
            return await self._at_leader(topic_id, partition, attempts, here, there)
        except Refused as refused:
            if not attempts.is_uncertain or refused.reason is Reason.REQUEST_TIMED_OUT:
                raise
            detail = f"It is not known whether the batch was written: {refused.detail}"
            raise Refused(Reason.REQUEST_TIMED_OUT, detail) from refused

    async def read(
        self,
        topic_id: TopicId,
        partition: int,
        offset: int,
        *,
        bytes_max: int,
        wait_s: float,
        deadline: float,
    ) -> ReadAnswer:
        """Batches from `offset` on, which may be inside the first one; waits until there are some,
        for at most `wait_s`. Raises Refused with OFFSET_OUT_OF_RANGE for an offset outside."""
        attempts = Attempts(self._clock, deadline)

        async def here() -> ReadAnswer:
            return await self._read(topic_id, partition, offset, bytes_max, wait_s)

        async def there(node: BrokerId) -> ReadAnswer:
            patience_s = max(0.0, min(wait_s, attempts.left_s))
            asked = _pack_place(topic_id, partition) + _READ.pack(offset, bytes_max, patience_s)
            answer = await self._peers.call(node, READ, asked, patience_s + READ_GRACE_S)
            start, end = _unpacked(_POSITIONS, answer)
            return ReadAnswer(answer[_POSITIONS.size :], start, end)

        return await self._at_leader(topic_id, partition, attempts, here, there)

    async def find(
        self, topic_id: TopicId, partition: int, timestamp: int, deadline: float
    ) -> FoundOffset:
        """The first record at or after a time, or a `Position`; offset -1 where there is none."""
        attempts = Attempts(self._clock, deadline)

        async def here() -> FoundOffset:
            return await self._find(topic_id, partition, timestamp)

        async def there(node: BrokerId) -> FoundOffset:
            asked = _pack_place(topic_id, partition) + _OFFSET.pack(timestamp)
            wait_s = _bounded(attempts.left_s)
            answer = await self._peers.call(node, FIND, asked, wait_s)
            return FoundOffset(*_unpacked(_FOUND, answer))

        return await self._at_leader(topic_id, partition, attempts, here, there)

    async def _at_leader(
        self,
        topic_id: TopicId,
        partition: int,
        attempts: Attempts,
        here: Callable[[], Awaitable[T]],
        there: Callable[[BrokerId], Awaitable[T]],
    ) -> T:
        while True:
            topic = self._topic(topic_id, partition)
            try:
                node = await self._leader(topic, partition)
                return await (here() if node == self._own else there(node))
            except Refused as refused:
                attempts.is_uncertain |= refused.reason in UNCERTAIN
                await attempts.after(refused)

    def _topic(self, topic_id: TopicId, partition: int) -> Topic:
        topic = self._topics.find_by_id(topic_id)
        if topic is None:
            raise Refused(Reason.UNKNOWN_TOPIC_ID, f"No topic has the id {topic_id}.")
        if not 0 <= partition < topic.partitions:
            detail = f"Topic {topic.name} has {topic.partitions} partitions, so no {partition}."
            raise Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, detail)
        return topic

    async def _leader(self, topic: Topic, partition: int) -> BrokerId:
        found = self._leaderships.reachable_leader(topic.topic_id, partition)
        if found is None:
            key = PartitionId(topic.topic_id, PartitionIndex(partition))
            await self._leaderships.wait_for_leaders([key])
            found = self._leaderships.reachable_leader(topic.topic_id, partition)
        if found is None:
            detail = f"Partition {partition} of {topic.name} has no leader now."
            raise Refused(Reason.LEADER_NOT_AVAILABLE, detail)
        return found.id

    # Here

    async def _append(
        self,
        topic_id: TopicId,
        partition: int,
        batch: bytes | memoryview,
        deadline: float,
        expected: int = -1,
    ) -> int:
        production = self._produce.start(ACKS_ALL, deadline)
        # Only the broker's own redriving numbers its producers so: a client that did would come by
        # Kafka's door.
        is_copy = peek_header(batch).producer_id >= COPIERS_FROM
        production.append(
            TopicName(""), topic_id, partition, batch, expected=expected, is_copy=is_copy
        )
        answer = production.finish()
        (part,) = await answer if isinstance(answer, Production) else answer
        if part.error is not None:
            raise part.error
        assert part.appended is not None
        return part.appended.base_offset

    async def _read(
        self, topic_id: TopicId, partition: int, offset: int, bytes_max: int, wait_s: float
    ) -> ReadAnswer:
        wanted = Wanted(TopicName(""), topic_id, partition, offset=offset, bytes_max=bytes_max)
        reading = Reading(self._fetch.reader([wanted]))
        wait_ms = int(wait_s * 1000)
        query = FetchQuery(wait_ms_max=wait_ms, bytes_min=1, bytes_max=bytes_max)
        answer = await self._fetch.fetch(reading, query)
        try:
            (fetched,) = answer.partitions
            if fetched.reason is not None:
                raise Refused(fetched.reason, self._said(fetched.reason, topic_id, wanted))
            records = fetched.records
            batches = records.read() if isinstance(records, FileRange) else records or b""
            return ReadAnswer(batches, fetched.log_start_offset, fetched.high_watermark)
        except OSError as failed:
            raise Refused(Reason.STORAGE_ERROR, f"The log can't be read: {failed}") from failed
        finally:
            answer.release()

    def _said(self, reason: Reason, topic_id: TopicId, wanted: Wanted) -> str:
        if reason is not Reason.OFFSET_OUT_OF_RANGE:
            return ""
        key = PartitionId(topic_id, PartitionIndex(wanted.partition))
        replica = self._partitions.find(key)
        if replica is None:
            return ""
        start, end = replica.log_start_offset, replica.high_watermark
        return f"The partition holds offsets from {start} to {end}, not {wanted.offset}."

    async def _find(self, topic_id: TopicId, partition: int, timestamp: int) -> FoundOffset:
        topic = self._topic(topic_id, partition)
        return await self._offsets.find(topic.name, partition, timestamp)

    # Answering other nodes

    async def _serve_publish(self, _: BrokerId, payload: bytes) -> bytes:
        topic_id, partition = _read_place(payload)
        (wait_s,) = _unpacked(_WAIT, payload, _PLACE.size)
        batch = memoryview(payload)[_PLACE.size + _WAIT.size :]
        deadline = self._clock.monotonic() + _bounded(wait_s)
        return _OFFSET.pack(await self._append(topic_id, partition, batch, deadline))

    async def _serve_publish_at(self, _: BrokerId, payload: bytes) -> bytes:
        topic_id, partition = _read_place(payload)
        (wait_s,) = _unpacked(_WAIT, payload, _PLACE.size)
        (expected,) = _unpacked(_OFFSET, payload, _PLACE.size + _WAIT.size)
        batch = memoryview(payload)[_PLACE.size + _WAIT.size + _OFFSET.size :]
        deadline = self._clock.monotonic() + _bounded(wait_s)
        return _OFFSET.pack(await self._append(topic_id, partition, batch, deadline, expected))

    async def _serve_read(self, _: BrokerId, payload: bytes) -> bytes:
        topic_id, partition = _read_place(payload)
        offset, bytes_max, wait_s = _unpacked(_READ, payload, _PLACE.size)
        found = await self._read(topic_id, partition, offset, bytes_max, wait_s)
        return _POSITIONS.pack(found.log_start_offset, found.high_watermark) + found.batches

    async def _serve_find(self, _: BrokerId, payload: bytes) -> bytes:
        topic_id, partition = _read_place(payload)
        (timestamp,) = _unpacked(_OFFSET, payload, _PLACE.size)
        return _FOUND.pack(*await self._find(topic_id, partition, timestamp))


def _bounded(left_s: float) -> float:
    return max(0.0, min(left_s, ATTEMPT_S_MAX))


def _pack_place(topic_id: TopicId, partition: int) -> bytes:
    return _PLACE.pack(topic_id.bytes, partition)


def _read_place(payload: bytes) -> tuple[TopicId, int]:
    try:
        name, partition = _PLACE.unpack_from(payload)
    except error:
        raise _malformed() from None
    return TopicId(UUID(bytes=name)), partition


def _unpacked(layout: Struct, payload: bytes, position: int = 0) -> tuple[Any, ...]:
    try:
        return layout.unpack_from(payload, position)
    except error:
        raise _malformed() from None


def _malformed() -> Refused:
    return Refused(Reason.INVALID_REQUEST, "a request of another node ends too early")
