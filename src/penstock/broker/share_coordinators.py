"""The share coordinators of the cluster: those on this node, and how to reach the others.

Each partition of __share_group_state has one, on the partition's leader. The topic is made on first
use. A queue belongs to a partition by its name.
"""

import asyncio
import logging
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from penstock.broker.leaderships import Leaderships
from penstock.broker.partitions import Partitions
from penstock.broker.topics import Topic, Topics
from penstock.cluster.changes import Change, TopicDeleted
from penstock.cluster.coordinator import Cluster
from penstock.cluster.topic_names import SHARE_GROUP_STATE
from penstock.groups.partitioner import partition_of
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, GroupId
from penstock.queues import calls
from penstock.queues.coordinator import ShareCoordinator
from penstock.queues.decisions import Open, QueueSummary, Write
from penstock.queues.layout import QueueKey, Reader
from penstock.queues.records import QueueRecord, QueueStored
from penstock.queues.state import Queue, QueuesState
from penstock.replication.calls import Handler
from penstock.replication.commit import Commit
from penstock.replication.hosting import Host
from penstock.replication.replica import Replica

logger = logging.getLogger(__name__)

# A change is one record, and that of a queue as a whole goes far beyond what producers may send.
STATE_MESSAGE_BYTES_MAX = 64 * 1024 * 1024
# A coordinator that does not answer for so long may have done what it was asked, or not.
CALL_S_MAX = 10.0

QueueHost: TypeAlias = Host[QueuesState, QueueRecord]
T = TypeVar("T")


class Peers(Protocol):
    """The other nodes."""

    def serve(self, method: str, handler: Handler, /) -> None: ...

    async def call(
        self, node: BrokerId, method: str, payload: bytes, timeout_s: float, /
    ) -> bytes: ...


class ShareCoordinators:
    def __init__(
        self,
        *,
        cluster: Cluster,
        partitions: Partitions,
        topics: Topics,
        leaderships: Leaderships,
        peers: Peers,
        make_host: Callable[[Replica], QueueHost],
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._topics = topics
        self._leaderships = leaderships
        self._peers = peers
        self._make_host = make_host
        # By partition of the topic, for those that have a replica here.
        self._coordinators: dict[int, ShareCoordinator] = {}
        self._making: asyncio.Task[Topic] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._serve()

    # Life

    def load(self) -> None:
        self._cluster.on_change(self._on_change)
        self._partitions.on_added(self._added)
        self._partitions.on_removed(self._removed)
        for replica in self._partitions.all():
            self._added(replica)

    async def close(self) -> None:
        self._is_closed = True
        tasks: list[asyncio.Task[Any]] = list(self._tasks)
        if self._making is not None:
            tasks.append(self._making)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        coordinators, self._coordinators = self._coordinators, {}
        await asyncio.gather(*(coordinator.close() for coordinator in coordinators.values()))

    def _added(self, replica: Replica) -> None:
        topic, index = replica.partition
        if topic != SHARE_GROUP_STATE or self._is_closed:
            return
        before = self._coordinators.get(index)
        if before is not None:
            if before.replica is replica:
                return
            self._run(before.close())
        coordinator = ShareCoordinator(host=self._make_host(replica))
        self._coordinators[index] = coordinator
        coordinator.start(self._became_active)

    def _removed(self, replica: Replica) -> None:
        topic, index = replica.partition
        coordinator = self._coordinators.get(index) if topic == SHARE_GROUP_STATE else None
        if coordinator is not None and coordinator.replica is replica:
            del self._coordinators[index]
            self._run(coordinator.close())

    def _became_active(self, coordinator: ShareCoordinator) -> None:
        # A topic may have been deleted while nobody was there to forget its queues.
        self._run(self._forget_lost_topics(coordinator))

    def _on_change(self, change: Change) -> None:
        if isinstance(change, TopicDeleted):
            gone = change.topic.topic_id
            for coordinator in self._coordinators.values():
                self._run(coordinator.remove_topics(lambda topic_id: topic_id == gone))

    async def _forget_lost_topics(self, coordinator: ShareCoordinator) -> None:
        """A topic that this node does not know may be one that it does not know yet."""
        try:
            await self._cluster.catch_up()
        except Refused as refused:
            logger.info("queues of deleted topics are kept for now: %s", refused.detail)
            return
        knows = self._cluster.topic_by_id
        await coordinator.remove_topics(lambda topic_id: knows(topic_id) is None)

    def stored(self) -> Iterator[Queue]:
        """The queues whose state is stored here; callers may wait between two."""
        for coordinator in list(self._coordinators.values()):
            yield from coordinator.stored()

    # Asking

    async def open(self, command: Open) -> QueueStored:
        topic = await self._ensure_topic()
        ask = partial(ShareCoordinator.open, command=command)
        index, payload = _place(command.key, topic), calls.encode_open(command)
        return await self._ask(topic, index, ask, calls.OPEN, payload, calls.read_opened)

    async def write(self, command: Write) -> None:
        topic = await self._ensure_topic()
        ask = partial(ShareCoordinator.write, command=command)
        index, payload = _place(command.key, topic), partial(calls.encode_write, command)
        await self._ask(topic, index, ask, calls.WRITE, payload, _nothing)

    def write_here(self, command: Write) -> Commit | None:
        topic = self._cluster.topic(SHARE_GROUP_STATE)
        if topic is None:
            return None
        coordinator = self._coordinators.get(_place(command.key, topic))
        if coordinator is None or not coordinator.is_active:
            return None
        try:
            return coordinator.begin_write(command)
        except Refused:
            # Nothing was done: `write` finds out what is wrong, and whether to ask again.
            return None

    async def initialize(self, starts: Mapping[QueueKey, int]) -> None:
        topic = await self._ensure_topic()
        await asyncio.gather(
            *(
                self._ask(
                    topic,
                    index,
                    partial(ShareCoordinator.initialize, starts=some),
                    calls.INITIALIZE,
                    calls.encode_starts(some),
                    _nothing,
                )
                for index, some in _by_place(starts, topic)
            )
        )

    async def alter(self, starts: Mapping[QueueKey, int]) -> dict[QueueKey, Refused | None]:
        topic = await self._ensure_topic()
        outcomes: dict[QueueKey, Refused | None] = {}
        for index, some in _by_place(starts, topic):
            outcomes |= await self._each(
                topic,
                index,
                some,
                partial(ShareCoordinator.alter, starts=some),
                calls.ALTER,
                calls.encode_starts(some),
            )
        return outcomes

    async def remove(self, keys: Collection[QueueKey]) -> dict[QueueKey, Refused | None]:
        topic = self._cluster.topic(SHARE_GROUP_STATE)
        if topic is None:
            return dict.fromkeys(keys)
        outcomes: dict[QueueKey, Refused | None] = {}
        for index, some in _by_place(dict.fromkeys(keys, 0), topic):
            outcomes |= await self._each(
                topic,
                index,
                some,
                partial(ShareCoordinator.remove, keys=list(some)),
                calls.REMOVE,
                calls.encode_keys(some),
            )
        return outcomes

    async def read(
        self, group_id: GroupId, keys: Collection[QueueKey] | None = None
    ) -> dict[QueueKey, QueueSummary]:
        """Those of the queues that are there, or all of the group's, wherever they are."""
        topic = await self._known_topic()
        if topic is None:
            return {}
        places: Iterable[tuple[int, Sequence[QueueKey] | None]]
        if keys is None:
            places = [(index, None) for index in range(topic.partitions)]
        else:
            by_place = _by_place(dict.fromkeys(keys, 0), topic)
            places = [(index, list(some)) for index, some in by_place]
        found = await asyncio.gather(
            *(
                self._ask(
                    topic,
                    index,
                    partial(ShareCoordinator.read, group_id=group_id, keys=some),
                    calls.READ,
                    calls.encode_read(group_id, some),
                    calls.read_summaries,
                )
                for index, some in places
            )
        )
        return {each.key: each for summaries in found for each in summaries}

    def with_letters(self) -> Iterator[QueueKey]:
        """Of the coordinators on this node: queues that have something to send. Callers may wait
        between two."""
        for coordinator in list(self._coordinators.values()):
            yield from coordinator.with_letters()

    async def _each(
        self,
        topic: Topic,
        index: int,
        keys: Iterable[QueueKey],
        ask: Callable[[ShareCoordinator], Awaitable[dict[QueueKey, Refused | None]]],
        method: str,
        payload: bytes,
    ) -> dict[QueueKey, Refused | None]:
        try:
            return await self._ask(topic, index, ask, method, payload, calls.read_outcomes)
        except Refused as refused:
            return dict.fromkeys(keys, refused)

    async def _ask(
        self,
        topic: Topic,
        index: int,
        ask: Callable[[ShareCoordinator], Awaitable[T]],
        method: str,
        payload: bytes | Callable[[], bytes],
        read: Callable[[Reader], T],
    ) -> T:
        """Asks the coordinator of a partition, here or on another node; what may be large is made
        into bytes only if it goes there."""
        leader = self._leaderships.reachable_leader(topic.topic_id, index)
        if leader is None:
            detail = f"{SHARE_GROUP_STATE}-{index} has no leader now"
            raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, detail)
        if leader.id == self._cluster.broker_id:
            return await self._ask_own(index, ask)
        data = payload if isinstance(payload, bytes) else payload()
        whole = calls.with_partition(index, data)
        answer = await self._peers.call(leader.id, method, whole, CALL_S_MAX)
        return calls.decoded(answer, read)

    async def _ask_own(self, index: int, ask: Callable[[ShareCoordinator], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(CALL_S_MAX):
                return await ask(self._coordinator(index))
        except TimeoutError:
            detail = f"{SHARE_GROUP_STATE}-{index} did not answer in time"
            raise Refused(Reason.REQUEST_TIMED_OUT, detail) from None

    # The topic

    async def _ensure_topic(self) -> Topic:
        topic = self._cluster.topic(SHARE_GROUP_STATE)
        if topic is not None:
            return topic
        if self._making is None or self._making.done():
            self._making = asyncio.get_running_loop().create_task(self._make_topic())
        try:
            # Shielded: others wait for it too.
            return await asyncio.shield(self._making)
        except Refused as refused:
            raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, refused.detail) from refused

    async def _make_topic(self) -> Topic:
        setting = self._cluster.broker_setting
        return await self._topics.ensure_internal(
            SHARE_GROUP_STATE,
            partitions=self._cluster.int_setting("share.coordinator.state.topic.num.partitions"),
            configs={
                # The coordinators shorten it themselves, and only they know how far.
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "retention.bytes": "-1",
                "compression.type": "producer",
                "segment.bytes": setting("share.coordinator.state.topic.segment.bytes"),
                "max.message.bytes": str(STATE_MESSAGE_BYTES_MAX),
            },
        )

    async def _known_topic(self) -> Topic | None:
        """None only if it does not exist: this node may not have heard of it yet."""
        topic = self._cluster.topic(SHARE_GROUP_STATE)
        if topic is None:
            await self._cluster.catch_up()
            topic = self._cluster.topic(SHARE_GROUP_STATE)
        return topic

    def _coordinator(self, index: int) -> ShareCoordinator:
        coordinator = self._coordinators.get(index)
        if coordinator is None:
            detail = f"{SHARE_GROUP_STATE}-{index} has no replica on this broker"
            raise Refused(Reason.NOT_COORDINATOR, detail)
        return coordinator

    # Answering

    def _serve(self) -> None:
        async def open_(coordinator: ShareCoordinator, command: Open) -> bytes:
            return calls.encode_stored(await coordinator.open(command))

        async def write(coordinator: ShareCoordinator, command: Write) -> bytes:
            await coordinator.write(command)
            return b""

        async def initialize(coordinator: ShareCoordinator, starts: dict[QueueKey, int]) -> bytes:
            await coordinator.initialize(starts)
            return b""

        async def alter(coordinator: ShareCoordinator, starts: dict[QueueKey, int]) -> bytes:
            return calls.encode_outcomes(await coordinator.alter(starts))

        async def remove(coordinator: ShareCoordinator, keys: list[QueueKey]) -> bytes:
            return calls.encode_outcomes(await coordinator.remove(keys))

        async def read(
            coordinator: ShareCoordinator, wanted: tuple[GroupId, list[QueueKey] | None]
        ) -> bytes:
            return calls.encode_summaries(await coordinator.read(*wanted))

        serve = self._peers.serve
        serve(calls.OPEN, self._handler(calls.read_open, open_))
        serve(calls.WRITE, self._handler(calls.read_write, write))
        serve(calls.INITIALIZE, self._handler(calls.read_starts, initialize))
        serve(calls.ALTER, self._handler(calls.read_starts, alter))
        serve(calls.REMOVE, self._handler(calls.read_keys, remove))
        serve(calls.READ, self._handler(calls.read_read, read))

    def _handler(
        self,
        read: Callable[[Reader], T],
        answer: Callable[[ShareCoordinator, T], Awaitable[bytes]],
    ) -> Handler:
        async def handle(_: BrokerId, payload: bytes) -> bytes:
            index, asked = calls.decoded(payload, calls.read_with_partition(read))
            return await answer(self._coordinator(index), asked)

        return handle

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            logger.error("work on queues in the background failed", exc_info=bug)


def _place(key: QueueKey, topic: Topic) -> int:
    name = f"{key.group_id}:{key.topic_id}:{key.partition}"
    return partition_of(GroupId(name), topic.partitions)


def _by_place(
    starts: Mapping[QueueKey, int], topic: Topic
) -> Iterable[tuple[int, dict[QueueKey, int]]]:
    found: dict[int, dict[QueueKey, int]] = {}
    for key, start in starts.items():
        found.setdefault(_place(key, topic), {})[key] = start
    return found.items()


def _nothing(_: Reader) -> None:
    return None
