"""Queues of this node: which share partitions it leads, and what is asked of them.

A queue is led where its data partition is. It is opened when somebody first asks for it, and closed
when the leadership or the topic goes, or when nobody has asked for long. What doors need to speak
of queues is exported here.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from penstock.broker.attempt_traces import AttemptTraces, TracedQueue
from penstock.broker.cold_reads import ColdReads
from penstock.broker.dead_letters import DeadLetters, Identities, Publisher
from penstock.broker.group_settings import TEXT_LENGTH_MAX
from penstock.broker.later import Later
from penstock.broker.leaderships import Leaderships
from penstock.broker.letter_waking import LetterWaking, by_leader
from penstock.broker.partitions import Partitions
from penstock.broker.polling import (
    AcquireCall,
    AcquiredPartition,
    AcquireQuery,
    Poll,
    WantedShare,
    count_deliveries,
)
from penstock.broker.queue_decisions import Place, QueueDecisions
from penstock.broker.queue_offsets import PartitionEnds, QueueOffset, queue_offset
from penstock.broker.queue_reads import QueueReads
from penstock.broker.queue_settings import SettingsOfQueues
from penstock.broker.redriving import RedriveResult, Redriving
from penstock.broker.share_coordinators import CALL_S_MAX, Peers, ShareCoordinators
from penstock.broker.topics import Topics
from penstock.cluster.changes import Change as ClusterChange
from penstock.cluster.changes import GroupConfigChanged
from penstock.cluster.coordinator import Cluster
from penstock.cluster.share_settings import StartKind
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, GroupId, MemberId, PartitionId, TopicId
from penstock.model.limits import Limits
from penstock.observe.node_counters import NodeCounters
from penstock.queues import calls
from penstock.queues.commands import AckBatch, AckType, AcquiredRange, ShareSettings
from penstock.queues.layout import QueueKey
from penstock.queues.leading import LedQueue
from penstock.queues.records import UNRESOLVED
from penstock.queues.state import Queue
from penstock.queues.tally import LeaseTally
from penstock.replication.alarm_clock import AlarmClock
from penstock.replication.positions import Position
from penstock.replication.replica import Replica

__all__ = [
    "AckBatch",
    "AckType",
    "AcquireQuery",
    "AcquiredPartition",
    "AcquiredRange",
    "QueueDecisions",
    "QueueOffset",
    "Queues",
    "RedriveResult",
    "WantedShare",
]

logger = logging.getLogger(__name__)

K = TypeVar("K")
L = TypeVar("L")

# Queues that one node leads at a time, over all groups.
QUEUES_MAX = 50_000
# One that nobody asked for so long, and that has no leases, is closed; looked at so often.
IDLE_S_MAX = 600.0
IDLE_CHECK_S = 60.0
FULL_CHECK_S = 1.0
# Polls that wait at a time; one more is answered at once, with what there is.
POLLS_WAITING_MAX = 20_000
# How long a node that stops waits until what it has accepted is stored.
LEAVE_S_MAX = 2.0


class Queues:
    def __init__(
        self,
        *,
        cluster: Cluster,
        partitions: Partitions,
        leaderships: Leaderships,
        coordinators: ShareCoordinators,
        peers: Peers,
        clock: Clock,
        limits: Limits,
        executor: Executor,
        topics: Topics,
        publisher: Publisher,
        identities: Identities,
        random_below: Callable[[int], int],
        counters: NodeCounters | None = None,
        traces: AttemptTraces | None = None,
    ) -> None:
        self._cluster = cluster
        self._make = LedQueue if traces is None else partial(TracedQueue, traces=traces)
        self._counters = counters
        self._partitions = partitions
        self._leaderships = leaderships
        self._coordinators = coordinators
        self._peers = peers
        self._clock = clock
        self._limits = limits
        self.settings = SettingsOfQueues(cluster)
        self._random_below = random_below
        cold_reads = ColdReads(executor)
        self.reads = QueueReads(cold_reads)
        self._tally = LeaseTally()
        self._alarms: AlarmClock[LedQueue] = AlarmClock(clock, LedQueue.expire)
        # Nobody can have said anything in time about records that wait: no grace after a stall.
        self._due_alarms: AlarmClock[LedQueue] = AlarmClock(
            clock, LedQueue.make_due, has_grace=lambda _: False
        )
        self._letters = DeadLetters(
            cluster=cluster,
            topics=topics,
            partitions=partitions,
            leaderships=leaderships,
            publisher=publisher,
            identities=identities,
            peers=peers,
            settings=self.settings,
            cold_reads=cold_reads,
            clock=clock,
            replica_of=self.replica_of,
            counters=counters,
            traces=traces,
        )
        self._redriving = Redriving(
            cluster=cluster,
            leaderships=leaderships,
            coordinators=coordinators,
            letters=self._letters,
            peers=peers,
            clock=clock,
            lead=self.lead,
        )
        # Those that are led here, opened or about to be.
        self._led: dict[QueueKey, LedQueue] = {}
        self._replicas: dict[LedQueue, Replica] = {}
        self._of_partition: dict[PartitionId, dict[GroupId, LedQueue]] = {}
        self._of_group: dict[GroupId, dict[QueueKey, LedQueue]] = {}
        self._openings = 0
        # When it is looked next for queues that nobody uses, in general and while there are too
        # many.
        self._check_at = clock.monotonic() + IDLE_CHECK_S
        self._check_full_at = clock.monotonic()
        self._polls: set[Poll] = set()
        # Whether nothing new is decided here.
        self._is_leaving = False
        partitions.on_removed(self._removed)
        self._ends = PartitionEnds(cluster.broker_id, partitions, leaderships, peers)
        peers.serve(calls.REOPEN, self._answer_reopen)
        peers.serve(calls.RELEASE, self._answer_release)
        self._waking = LetterWaking(
            cluster=cluster,
            leaderships=leaderships,
            coordinators=coordinators,
            peers=peers,
            lead=self.lead,
        )

    async def load(self) -> None:
        self._coordinators.load()
        self._cluster.on_change(self._on_change)
        self._waking.start()

    async def leave(self) -> None:
        """The node is about to stop. From now on nothing new is decided here, polls that wait are
        answered, and whatever was accepted is stored while this node still leads: so its answer
        says that it counts."""
        self._is_leaving = True
        for poll in list(self._polls):
            poll.end()
        accepted = [queue.stored() for queue in self._led.values() if queue.is_open]
        # With most nodes gone it can't be.
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S_MAX):
                for commit in accepted:
                    with suppress(Refused):
                        await commit

    async def close(self) -> None:
        """Anyone who still waits is answered; what is stored stays."""
        self._is_leaving = True
        self._waking.stop()
        self._close_all(Refused(Reason.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down"))
        self._alarms.stop()
        self._due_alarms.stop()
        await self._coordinators.close()

    def _on_change(self, change: ClusterChange) -> None:
        """A group that is not paused any more has polls that wait."""
        if isinstance(change, GroupConfigChanged):
            for queue in self._led_of(GroupId(change.group)):
                queue.tell_news()

    # Records

    def acquire(self, query: AcquireQuery) -> Later[list[AcquiredPartition]]:
        """The records are leased when it settles; cancelled when the client is gone."""
        poll = self._poll(query)
        return AcquireCall(poll, self._counted(poll))

    async def acquired(self, query: AcquireQuery) -> list[AcquiredPartition]:
        """The same in the caller's own task."""
        return await self._counted(self._poll(query))

    def _poll(self, query: AcquireQuery) -> Poll:
        wait_ms = min(query.wait_ms_max, self._limits.fetch_wait_ms_max)
        return Poll(
            query,
            finder=self,
            reads=self.reads,
            clock=self._clock,
            wait_s=wait_ms / 1000 if len(self._polls) < POLLS_WAITING_MAX else 0.0,
            bytes_max=self._limits.fetch_bytes_max,
        )

    async def _counted(self, poll: Poll) -> list[AcquiredPartition]:
        self._polls.add(poll)
        try:
            answers = await poll.run()
        finally:
            self._polls.discard(poll)
        if self._counters is not None:
            count_deliveries(self._counters, self._partitions, poll.group_id, answers)
        return answers

    def acknowledge(
        self,
        group_id: GroupId,
        member_id: MemberId,
        acks: Mapping[Place, Sequence[AckBatch]],
    ) -> QueueDecisions:
        """For each partition why it is refused, or None once it is stored."""
        return QueueDecisions(
            self.lead,
            group_id,
            acks,
            lambda queue, place: queue.acknowledge(member_id, acks[place]),
            confirms=True,
        )

    async def release(
        self,
        group_id: GroupId,
        member_id: MemberId,
        keys: Collection[Place] | None = None,
    ) -> None:
        """The member gives back all it has: of these partitions, or of all that are open here."""
        if keys is None:
            led = self._led_of(group_id)
            keys = [(queue.key.topic_id, queue.key.partition) for queue in led if queue.is_open]
        outcomes = await QueueDecisions(
            self.lead, group_id, keys, lambda queue, place: queue.release(member_id)
        )
        for refused in outcomes.values():
            if refused is not None:
                # Its leases end by themselves.
                logger.debug("%s could not give back what it has: %s", member_id, refused.detail)

    def lock_duration_ms(self, group_id: GroupId) -> int:
        return self.settings.of(group_id).lease_ms

    # What groups and operators ask

    async def initialize(
        self, group_id: GroupId, partitions: Mapping[TopicId, Mapping[int, int]]
    ) -> None:
        """Makes queues that are not there yet, each with its start, or with -1 to follow the
        group's setting when it is first polled."""
        starts = {
            QueueKey(group_id, topic_id, partition): start
            for topic_id, of_topic in partitions.items()
            for partition, start in of_topic.items()
        }
        if starts:
            await self._coordinators.initialize(starts)

    async def describe_offsets(
        self, group_id: GroupId, wanted: Mapping[TopicId, Collection[int]] | None
    ) -> dict[Place, QueueOffset | Refused]:
        """Of these partitions, or of all that the group knows."""
        keys = None if wanted is None else list(_keys(group_id, wanted))
        found = await self._coordinators.read(group_id, keys)
        ends = await self._ends.of(key for key, each in found.items() if each.start != UNRESOLVED)
        troubles = await self._letters.troubles(
            [key for key, each in found.items() if each.dying_count]
        )
        outcomes: dict[Place, QueueOffset | Refused] = {}
        for key in found if keys is None else keys:
            place = (key.topic_id, key.partition)
            refused = None if keys is None else self._unknown(key)
            offset = queue_offset(found.get(key), ends.get(place, -1), troubles.get(key, ""))
            outcomes[place] = refused or offset
        return outcomes

    def stored(self) -> Iterator[Queue]:
        """The queues whose state is stored on this node; callers may wait between two."""
        return self._coordinators.stored()

    async def topics_of(self, group_id: GroupId) -> set[str]:
        """The names of topics that the group has queues on."""
        keys = await self._coordinators.read(group_id)
        topics = map(self._cluster.topic_by_id, {key.topic_id for key in keys})
        return {topic.name for topic in topics if topic is not None}

    async def alter_offsets(
        self, group_id: GroupId, offsets: Mapping[Place, int]
    ) -> dict[Place, Refused | None]:
        """Moves the starts of queues without leases, whether or not they were there."""
        outcomes: dict[Place, Refused | None] = {}
        starts: dict[QueueKey, int] = {}
        for place, offset in offsets.items():
            key = QueueKey(group_id, *place)
            refused = self._unknown(key)
            if refused is None and offset >= 0:
                starts[key] = offset
            else:
                detail = f"{offset} can't be the start of a queue"
                outcomes[place] = refused or Refused(Reason.INVALID_REQUEST, detail)
        for key, outcome in (await self._coordinators.alter(starts)).items() if starts else ():
            outcomes[(key.topic_id, key.partition)] = outcome
        await self._reopen(starts)
        return outcomes

    async def delete_offsets(
        self, group_id: GroupId, topics: Collection[TopicId]
    ) -> dict[TopicId, Refused | None]:
        """Forgets all queues of the group on these topics, unless records of one are leased."""
        outcomes: dict[TopicId, Refused | None] = dict.fromkeys(topics)
        found = [
            each
            for each in (await self._coordinators.read(group_id)).values()
            if each.key.topic_id in outcomes
        ]
        for each in found:
            if each.leased_count:
                detail = f"records of {each.key} are leased"
                outcomes[each.key.topic_id] = Refused(Reason.NON_EMPTY_GROUP, detail)
        free = [each.key for each in found if outcomes[each.key.topic_id] is None]
        for key, refused in (await self._coordinators.remove(free)).items():
            if refused is not None:
                outcomes[key.topic_id] = refused
        await self._reopen(free)
        return outcomes

    def _unknown(self, key: QueueKey) -> Refused | None:
        topic = self._cluster.topic_by_id(key.topic_id)
        if topic is not None and 0 <= key.partition < topic.partitions:
            return None
        return Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {key}")

    async def redrive(self, group_id: GroupId, topic: str, limit: int) -> RedriveResult:
        """Brings back what the group has given up of a topic, from its dead-letter topic: at most
        `limit` records. Asked again, it goes on."""
        check_group_id(group_id)
        return await self._redriving.redrive(group_id, topic, limit)

    # Queues that were changed behind the back of their leaders

    async def _reopen(self, keys: Iterable[QueueKey]) -> None:
        """Their leaders let go of what they know of them. One that can't be reached finds out with
        its next write, which is refused."""
        led = by_leader(self._leaderships, keys)
        await asyncio.gather(*(self._ask_reopen(*each) for each in led.items()))

    async def _ask_reopen(self, node: BrokerId, keys: Sequence[QueueKey]) -> None:
        if node == self._cluster.broker_id:
            self._close(keys)
            return
        try:
            await self._peers.call(node, calls.REOPEN, calls.encode_keys(keys), CALL_S_MAX)
        except Refused as refused:
            logger.info("node %d keeps its copies of queues: %s", node, refused.detail)

    async def _answer_reopen(self, _: BrokerId, payload: bytes) -> bytes:
        self._close(calls.decoded(payload, calls.read_keys))
        return b""

    def _close(self, keys: Iterable[QueueKey]) -> None:
        for key in keys:
            queue = self._led.get(key)
            if queue is not None:
                queue.close(Refused(Reason.COORDINATOR_NOT_AVAILABLE, "its start was changed"))

    # Members that are gone

    async def members_gone(self, group_id: GroupId, member_ids: Collection[MemberId]) -> None:
        """What is leased to them goes back at once, wherever their queues are led. On a node that
        can't be reached their leases run out by themselves."""
        payload = calls.encode_members(group_id, member_ids)
        nodes = self._cluster.alive_brokers()
        await asyncio.gather(*(self._ask_release(node, payload) for node in nodes))

    async def _ask_release(self, node: BrokerId, payload: bytes) -> None:
        if node == self._cluster.broker_id:
            await self._answer_release(node, payload)
            return
        try:
            await self._peers.call(node, calls.RELEASE, payload, CALL_S_MAX)
        except Refused as refused:
            logger.info("node %d keeps leases of members that left: %s", node, refused.detail)

    async def _answer_release(self, _: BrokerId, payload: bytes) -> bytes:
        group_id, member_ids = calls.decoded(payload, calls.read_members)
        gone = frozenset(member_ids)
        for queue in self._led_of(group_id):
            if queue.is_open:
                for member_id in gone & queue.holders():
                    queue.release(MemberId(member_id))
        return b""

    # Queues that are led here

    def lead(self, group_id: GroupId, topic_id: TopicId, partition: int) -> LedQueue:
        if self._is_leaving:
            raise Refused(Reason.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down")
        key = QueueKey(group_id, topic_id, partition)
        queue = self._led.get(key)
        if queue is not None:
            queue.used_at = self._clock.monotonic()
            return queue
        if not _is_group_id(group_id):
            raise Refused(Reason.GROUP_ID_NOT_FOUND, "no group has such an id")
        replica = self._partitions.get_by_id(topic_id, partition)
        replica.check_leader()
        self._make_room()
        queue = self._led[key] = self._new(key, replica)
        self._replicas[queue] = replica
        self._of_partition.setdefault(replica.key, {})[group_id] = queue
        self._of_group.setdefault(group_id, {})[key] = queue
        return queue

    def _led_of(self, group_id: GroupId) -> list[LedQueue]:
        """Those of a group, without a look at all others."""
        return list(self._of_group.get(group_id, {}).values())

    def replica_of(self, queue: LedQueue) -> Replica:
        try:
            return self._replicas[queue]
        except KeyError:
            raise Refused(Reason.NOT_LEADER_OR_FOLLOWER, f"{queue.key} is closed") from None

    def settings_of(self, queue: LedQueue) -> ShareSettings:
        return self.settings.of(queue.key.group_id)

    def _new(self, key: QueueKey, replica: Replica) -> LedQueue:
        return self._make(
            key=key,
            log=replica,
            store=self._coordinators,
            alarms=self._alarms,
            due_alarms=self._due_alarms,
            clock=self._clock,
            random_below=self._random_below,
            tally=self._tally.of_queue(key.group_id),
            settings_of=lambda: self.settings.of_queue(key),
            resolve_start=lambda: self._resolve_start(key.group_id, replica),
            read_keys=partial(self.reads.keys, replica),
            next_opening=self._next_opening,
            on_closed=self._closed,
            on_dying=self._letters.carry,
        )

    def _next_opening(self) -> int:
        """Grows as long as the process lives; one that comes after it leads in a later term."""
        self._openings += 1
        return self._openings

    async def _resolve_start(self, group_id: GroupId, replica: Replica) -> int:
        position = self.settings.start_of(group_id)
        if position.kind is StartKind.EARLIEST:
            return replica.log_start_offset
        if position.kind is StartKind.BY_DURATION:
            since_ms = max(0, self._clock.now_ms() - position.ago_ms)
            found = await replica.list_offset(since_ms)
            if found.offset >= 0:
                return found.offset
        return (await replica.list_offset(Position.LATEST)).offset

    def _closed(self, queue: LedQueue) -> None:
        self._letters.drop(queue)
        if self._led.get(queue.key) is not queue:
            return
        key, group_id = queue.key, queue.key.group_id
        del self._led[key]
        _remove(self._of_partition, self._replicas.pop(queue).key, group_id)
        _remove(self._of_group, group_id, key)

    def _make_room(self) -> None:
        """Closes queues that nobody uses: some now and then, and all if there are too many."""
        now = self._clock.monotonic()
        if now >= self._check_at:
            self._check_at = now + IDLE_CHECK_S
            self._close_idle(now - IDLE_S_MAX)
        if len(self._led) >= QUEUES_MAX and now >= self._check_full_at:
            self._close_idle(now)
            if len(self._led) >= QUEUES_MAX:
                # All of them are looked at, so not at once again.
                self._check_full_at = now + FULL_CHECK_S
        if len(self._led) >= QUEUES_MAX:
            raise Refused(Reason.THROTTLED, f"this broker leads {QUEUES_MAX} queues already")

    def _close_idle(self, unused_since: float) -> None:
        unused = Refused(Reason.COORDINATOR_NOT_AVAILABLE, "nobody used it")
        for queue in list(self._led.values()):
            if queue.is_idle and queue.used_at <= unused_since:
                queue.close(unused)

    def _removed(self, replica: Replica) -> None:
        """The topic was deleted, or the partition moved to other brokers."""
        topic_id = replica.topic_id
        gone = Refused(Reason.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        if self._cluster.topic_by_id(topic_id) is not None:
            gone = Refused(Reason.NOT_LEADER_OR_FOLLOWER, f"{replica.partition} moved away")
        for queue in list(self._of_partition.get(replica.key, {}).values()):
            queue.close(gone)

    def _close_all(self, refused: Refused) -> None:
        for queue in list(self._led.values()):
            queue.close(refused)


def _remove(index: dict[K, dict[L, LedQueue]], key: K, entry: L) -> None:
    found = index[key]
    del found[entry]
    if not found:
        del index[key]


def _keys(group_id: GroupId, wanted: Mapping[TopicId, Collection[int]]) -> Iterable[QueueKey]:
    for topic_id, partitions in wanted.items():
        for partition in partitions:
            yield QueueKey(group_id, topic_id, partition)


def check_group_id(group_id: GroupId) -> None:
    if not _is_group_id(group_id):
        raise Refused(Reason.INVALID_GROUP_ID, "a group id must not be empty or very long")


def _is_group_id(group_id: GroupId) -> bool:
    return 0 < len(group_id) <= TEXT_LENGTH_MAX
