"""Members of consumer groups for clients that only ask for the next records.

A consumer lives in this process: it joins its group (KIP-848), sends the heartbeats, and remembers
how far it has read. It ends when it is closed, when nobody asks for long, and with this process.
The group then gives its partitions to others, who go on at the committed offsets.

A client deals with what it got and asks for more: so a poll commits what the last one delivered,
and only then gives up partitions that the group wants back. Nothing is lost, and after a failure
some records come twice.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID, uuid4

from penstock.broker.doors.calls import GroupOffset, ReadGroupOffsets, TopicInfo
from penstock.broker.doors.member_calls import BeatAsMember, CommitAsMember, Membership, Owned
from penstock.frontdoor.remote.broker import Broker
from penstock.frontdoor.remote.reading import EARLIEST, Chunk, Reader
from penstock.frontdoor.remote.topics import Topics
from penstock.model.errors import Reason, Refused
from penstock.records.record import Record

CONSUMERS_MAX: Final = 1_000
TOPICS_PER_CONSUMER_MAX: Final = 100
IDLE_MS: Final = 300_000
IDLE_MS_MIN: Final = 10_000
IDLE_MS_MAX: Final = 3_600_000
# Partitions that one poll waits at.
READS_MAX: Final = 64
# Between two heartbeats that failed.
RETRY_S: Final = 0.5
LEAVE_S_MAX: Final = 5.0
_LEAVE: Final = -1
_JOIN: Final = 0
# The group does not know the member any more: it joins again, with nothing.
_FENCED: Final = frozenset({Reason.FENCED_MEMBER_EPOCH, Reason.UNKNOWN_MEMBER_ID})


class Busy(Exception):
    """Another poll of the consumer is under way."""


# A topic's name and a partition.
Place = tuple[str, int]


@dataclass(slots=True)
class Delivery:
    """Records of one partition, in order."""

    topic: str
    partition: int
    records: list[Record]


@dataclass(slots=True, eq=False)
class Consumer:
    """One member; `Consumers` does all with it."""

    group: str
    topics: list[str]
    # Where partitions without a committed offset begin: EARLIEST or LATEST of reading.py.
    start: int
    idle_s: float
    id: str = field(default_factory=lambda: str(uuid4()))
    epoch: int = _JOIN
    used_at: float = 0.0
    infos: dict[UUID, TopicInfo] = field(default_factory=dict)
    # What the group gave us last, and what we read: the latter has all until the next poll.
    assigned: frozenset[Place] = frozenset()
    positions: dict[Place, int] = field(default_factory=dict)
    # Where a commit would say that we are, of what was delivered since the last one.
    uncommitted: dict[Place, int] = field(default_factory=dict)
    is_polling: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    living: "asyncio.Task[None] | None" = None


class Consumers:
    def __init__(
        self, broker: Broker, topics: Topics, reader: Reader, now_s: Callable[[], float]
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._reader = reader
        self._now_s = now_s
        self._consumers: dict[tuple[str, str], Consumer] = {}

    # Life

    async def create(self, group: str, topics: list[str], start: int, idle_ms: int) -> Consumer:
        """A new member of the group; raises Refused."""
        if len(self._consumers) >= CONSUMERS_MAX:
            detail = f"This node has {CONSUMERS_MAX:,} consumers for HTTP clients already."
            raise Refused(Reason.THROTTLED, detail)
        consumer = Consumer(group=group, topics=topics, start=start, idle_s=idle_ms / 1000)
        for name in topics:
            info = await self._topics.find(name)
            consumer.infos[info.topic_id] = info
        consumer.used_at = self._now_s()
        self._consumers[group, consumer.id] = consumer
        try:
            interval_s = await self._beat(consumer, {})
        except BaseException:
            del self._consumers[group, consumer.id]
            raise
        consumer.living = asyncio.get_running_loop().create_task(self._live(consumer, interval_s))
        return consumer

    def find(self, group: str, consumer_id: str) -> Consumer | None:
        consumer = self._consumers.get((group, consumer_id))
        if consumer is not None:
            consumer.used_at = self._now_s()
        return consumer

    async def close(self, consumer: Consumer) -> None:
        """Leaves the group; what was not committed comes to others."""
        self._consumers.pop((consumer.group, consumer.id), None)
        if consumer.living is not None:
            consumer.living.cancel()
        with contextlib.suppress(Refused):
            await self._broker.ask(
                BeatAsMember(group_id=consumer.group, member_id=consumer.id, member_epoch=_LEAVE),
                LEAVE_S_MAX,
            )

    async def close_all(self) -> None:
        """The process ends."""
        await asyncio.gather(*map(self.close, list(self._consumers.values())))

    async def _live(self, consumer: Consumer, interval_s: float) -> None:
        """Heartbeats until it is closed or nobody has used it for long."""
        while True:
            await asyncio.sleep(interval_s)
            is_idle = self._now_s() - consumer.used_at > consumer.idle_s
            if is_idle and not consumer.is_polling:
                consumer.living = None
                await self.close(consumer)
                return
            try:
                interval_s = await self._beat(consumer, None)
            except Refused:
                interval_s = RETRY_S

    async def _beat(self, consumer: Consumer, owned: Mapping[UUID, list[int]] | None) -> float:
        """Tells the group what we have, if that has changed; gives the time until the next."""
        is_new = consumer.epoch == _JOIN
        call = BeatAsMember(
            group_id=consumer.group,
            member_id=consumer.id,
            member_epoch=consumer.epoch,
            client_id="http",
            rebalance_timeout_ms=int(consumer.idle_s * 1000) if is_new else None,
            topics=consumer.topics if is_new else None,
            owned=[] if is_new else None if owned is None else list(owned.items()),
        )
        try:
            answer: Membership = await self._broker.ask(call)
        except Refused as refused:
            if refused.reason in _FENCED and not is_new:
                # Others have the partitions by now, and what was not committed comes to them.
                consumer.epoch, consumer.assigned = _JOIN, frozenset()
                consumer.positions, consumer.uncommitted = {}, {}
                return await self._beat(consumer, {})
            raise
        consumer.epoch = answer.member_epoch
        if answer.assignment is not None:
            self._assign(consumer, answer.assignment)
        return answer.heartbeat_interval_ms / 1000

    def _assign(self, consumer: Consumer, assignment: Owned) -> None:
        consumer.assigned = frozenset(
            (consumer.infos[topic_id].name, partition)
            for topic_id, partitions in assignment
            if topic_id in consumer.infos
            for partition in partitions
        )
        consumer.changed.set()

    # Reading

    async def poll(
        self, consumer: Consumer, limit: int, wait_s: float, *, commits: bool
    ) -> list[Delivery]:
        """The next records; waits for the first up to `wait_s`. Raises Refused, and Busy
        while another poll of the consumer is under way."""
        if consumer.is_polling:
            raise Busy
        consumer.is_polling = True
        try:
            if commits:
                await self.commit(consumer)
            deadline = self._now_s() + wait_s
            while True:
                await self._take_on(consumer)
                consumer.changed.clear()
                left_s = max(0.0, deadline - self._now_s())
                found = await self._read(consumer, limit, left_s)
                if found or self._now_s() >= deadline:
                    return found
        finally:
            consumer.is_polling = False
            consumer.used_at = self._now_s()

    async def commit(self, consumer: Consumer) -> None:
        """What was delivered so far is done with."""
        wanted, epoch = dict(consumer.uncommitted), consumer.epoch
        if not wanted:
            return
        offsets = [
            GroupOffset(topic=topic, partition=partition, offset=offset)
            for (topic, partition), offset in wanted.items()
        ]
        call = CommitAsMember(
            group_id=consumer.group, member_id=consumer.id, member_epoch=epoch, offsets=offsets
        )
        try:
            await self._broker.ask(call)
        except Refused as refused:
            if refused.reason is not Reason.STALE_MEMBER_EPOCH:
                raise
            await self._beat(consumer, None)
            await self._broker.ask(
                CommitAsMember(
                    group_id=consumer.group,
                    member_id=consumer.id,
                    member_epoch=consumer.epoch,
                    offsets=offsets,
                )
            )
        for place, offset in wanted.items():
            if consumer.uncommitted.get(place) == offset:
                del consumer.uncommitted[place]

    async def _take_on(self, consumer: Consumer) -> None:
        """Gives up what the group wants back, and begins with what it gave us."""
        if consumer.positions.keys() == consumer.assigned:
            return
        assigned = consumer.assigned
        for place in consumer.positions.keys() - assigned:
            del consumer.positions[place]
            consumer.uncommitted.pop(place, None)
        new = assigned - consumer.positions.keys()
        if new:
            found = await self._broker.ask(ReadGroupOffsets(group_id=consumer.group))
            committed = {(each.topic, each.partition): each.offset for each in found.offsets}
            for place in sorted(new):
                offset = committed.get(place)
                consumer.positions[place] = (
                    await self._found(consumer, place, consumer.start) if offset is None else offset
                )
        owned: dict[UUID, list[int]] = {}
        for topic_id, info in consumer.infos.items():
            partitions = sorted(each for name, each in consumer.positions if name == info.name)
            if partitions:
                owned[topic_id] = partitions
        await self._beat(consumer, owned)

    async def _found(self, consumer: Consumer, place: Place, start: int) -> int:
        return await self._reader.find(_info(consumer, place[0]), place[1], start)

    async def _read(self, consumer: Consumer, limit: int, wait_s: float) -> list[Delivery]:
        """Of all partitions, as long as none of them was taken away meanwhile."""
        places = list(consumer.positions)[:READS_MAX]
        changed = asyncio.ensure_future(consumer.changed.wait())
        reads = {
            asyncio.ensure_future(self._read_one(consumer, place, limit, wait_s)): place
            for place in places
        }
        try:
            waiting = set(reads)
            while waiting and not changed.done():
                done, _ = await asyncio.wait(
                    [*waiting, changed], return_when=asyncio.FIRST_COMPLETED
                )
                waiting -= done
                if any(each.result().records for each in reads if each in done):
                    break
            if not reads:
                await asyncio.wait([changed], timeout=wait_s)
            found = {reads[each]: each.result() for each in reads if each.done()}
        finally:
            for each in (changed, *reads):
                each.cancel()
        return self._deliver(consumer, found, limit)

    async def _read_one(self, consumer: Consumer, place: Place, limit: int, wait_s: float) -> Chunk:
        info = _info(consumer, place[0])
        offset = consumer.positions[place]
        try:
            return await self._reader.read(info, place[1], offset, records_max=limit, wait_s=wait_s)
        except Refused as refused:
            if refused.reason is not Reason.OFFSET_OUT_OF_RANGE:
                raise
            # Retention has passed it.
            offset = await self._found(consumer, place, EARLIEST)
            return Chunk([], offset, offset, offset)

    def _deliver(
        self, consumer: Consumer, found: Mapping[Place, Chunk], limit: int
    ) -> list[Delivery]:
        """Up to the limit; partitions that had their turn go to the end of the line."""
        deliveries = []
        for place, chunk in found.items():
            if place not in consumer.positions or (limit == 0 and chunk.records):
                continue
            records = chunk.records[:limit]
            limit -= len(records)
            is_all = len(records) == len(chunk.records)
            following = chunk.next_offset if is_all else records[-1].offset + 1
            del consumer.positions[place]
            consumer.positions[place] = following
            if records:
                consumer.uncommitted[place] = following
                deliveries.append(Delivery(place[0], place[1], records))
        return deliveries


def _info(consumer: Consumer, name: str) -> TopicInfo:
    return next(info for info in consumer.infos.values() if info.name == name)
