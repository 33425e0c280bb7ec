"""A metadata group without disks or sockets: nodes that share one log, and a loop between them.

`Group` is the committed log and who leads it. A `FakeNode` has a host and a feed on it and a fake
exchange to the other nodes; commits can be delayed, refused, or their answers lost.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from penstock.cluster.brokers import Broker
from penstock.cluster.coordinator import Cluster
from penstock.cluster.metadata_group import METADATA_KEY
from penstock.cluster.records import BrokerStored, ClusterRecord, ClusterRecordCodec
from penstock.cluster.state import ClusterState
from penstock.model.endpoint import Endpoint
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, DirectoryId, Offset, PartitionId, ReplicaId, Term
from penstock.records.record import Headers, Record
from penstock.replication.leaders import LeaderInfo, LeaderTable

Stored = tuple[bytes | None, bytes | None]
Handler = Callable[[BrokerId, bytes], Awaitable[bytes]]


def broker(number: int, *, directory: str = "", rack: str | None = None) -> Broker:
    return Broker(
        id=BrokerId(number),
        directory=DirectoryId(directory or f"dir{number}"),
        kafka=Endpoint("localhost", 9092 + 100 * number),
        peer=Endpoint("localhost", 9095 + 100 * number),
        rack=rack,
    )


class Group:
    """The log of the metadata that all nodes share, who leads it, and who is there."""

    def __init__(self, log: list[Stored] | None = None) -> None:
        self.log: list[Stored] = [] if log is None else log
        self.codec = ClusterRecordCodec()
        self.nodes: dict[BrokerId, FakeNode] = {}
        self.leader: BrokerId | None = BrokerId(0)
        self.term = 1
        self.commits = 0
        self.is_disk_full = False
        # While set, appends are applied but nothing is committed.
        self.held: asyncio.Event | None = None
        # Whether the next leader has what the last one could not commit any more.
        self.keeps_uncommitted = False
        # Nothing before it is in the log of any node.
        self.log_start = 0
        self._headers: dict[int, Headers] = {}

    def elect(self, leader: int | None) -> None:
        self.leader = None if leader is None else BrokerId(leader)
        self.term += 1
        for node in self.nodes.values():
            node.host.reload()
            node.host.lost()
        if self.leader is not None:
            info = LeaderInfo(Term(self.term), self.leader, (self.leader,))
            for node in self.nodes.values():
                node.exchange.leaders.learn(METADATA_KEY, info)
            self.nodes[self.leader].host.became_ready()

    def commit(self, records: Sequence[ClusterRecord], headers: Headers = ()) -> None:
        first = len(self.log)
        self._headers.update({first + index: headers for index in range(len(records))})
        self.log += [self.codec.encode(record) for record in records]
        self.commits += 1
        for node in self.nodes.values():
            node.feed.follow()

    def record_at(self, offset: int) -> Record | None:
        if offset < self.log_start:
            return None
        key, value = self.log[offset]
        headers = self._headers.get(offset, ())
        return Record(offset=offset, key=key, value=value, headers=headers)


class FakeFeed:
    """The committed copy of a node; `lag` keeps it from hearing more."""

    def __init__(self, group: Group) -> None:
        self.state = ClusterState()
        self.applied = Offset(0)
        self.is_lagging = False
        self._group = group
        self._callbacks: list[Callable[[Sequence[ClusterRecord], Offset], None]] = []
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def on_applied(self, callback: Callable[[Sequence[ClusterRecord], Offset], None]) -> None:
        self._callbacks.append(callback)

    async def load(self) -> None:
        self.follow()

    async def wait_for(self, offset: int) -> None:
        if self.applied < offset:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((offset, done))
            await done

    async def record_at(self, offset: int) -> Record | None:
        return self._group.record_at(offset)

    def follow(self) -> None:
        if not self.is_lagging and self.applied < len(self._group.log):
            self.follow_to(len(self._group.log))

    def follow_to(self, end: int) -> None:
        """Even if it lags."""
        codec = self._group.codec
        records = [codec.decode(*stored) for stored in self._group.log[self.applied : end]]
        for record in records:
            self.state.apply(record)
        self.applied = Offset(end)
        for callback in self._callbacks:
            callback(records, self.applied)
        for offset, done in self._waiting:
            if offset <= self.applied and not done.done():
                done.set_result(None)


class FakeReplica:
    def __init__(self, node: "FakeNode") -> None:
        self._node = node
        self.stopped_because: Exception | None = None
        self.wanted: tuple[list[ReplicaId], list[ReplicaId]] | None = None
        self.uncommitted = 0

    @property
    def is_leader(self) -> bool:
        return self._node.group.leader == self._node.number

    @property
    def log_end_offset(self) -> Offset:
        return Offset(len(self._node.group.log) + self.uncommitted)

    def check_running(self) -> None:
        if self.stopped_because is not None:
            raise Refused(Reason.STORAGE_ERROR, str(self.stopped_because))

    def check_writable(self) -> None:
        self.check_running()

    async def confirm(self) -> None:
        if not self.is_leader:
            raise Refused(Reason.NOT_LEADER_OR_FOLLOWER)

    def set_wanted(self, voters: Sequence[ReplicaId], learners: Sequence[ReplicaId] = ()) -> None:
        self.wanted = (list(voters), list(learners))


class FakeHost:
    """Like the real one: applies at append, answers after commit, rebuilds after a failure."""

    def __init__(self, node: "FakeNode") -> None:
        self.replica = FakeReplica(node)
        self.state = ClusterState()
        self._node = node
        self._on_ready: list[Callable[[], None]] = []
        self._on_lost: list[Callable[[], None]] = []
        self._tail: asyncio.Future[None] | None = None

    @property
    def is_ready(self) -> bool:
        return self.replica.is_leader

    def on_ready(self, callback: Callable[[], None]) -> None:
        self._on_ready.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        self._on_lost.append(callback)

    def lost(self) -> None:
        for callback in self._on_lost:
            callback()

    def start(self) -> None:
        self.reload()
        if self.is_ready:
            self.became_ready()

    def became_ready(self) -> None:
        for callback in self._on_ready:
            callback()

    def reload(self) -> None:
        self.state = ClusterState()
        self.replica.uncommitted = 0
        for key, value in self._node.group.log:
            self.state.apply(self._node.group.codec.decode(key, value))

    def submit(
        self, records: Sequence[ClusterRecord], headers: Headers = ()
    ) -> "asyncio.Future[None]":
        before = self._tail
        for record in records:
            self.state.apply(record)
        self.replica.uncommitted += len(records)
        term = self._node.group.term
        self._tail = asyncio.ensure_future(self._commit(before, list(records), headers, term))
        return self._tail

    async def idle(self) -> None:
        """Returns when all that was submitted is committed, or never will be."""
        if self._tail is not None:
            await asyncio.wait([self._tail])

    async def _commit(
        self,
        before: "asyncio.Future[None] | None",
        records: list[ClusterRecord],
        headers: Headers,
        term: int,
    ) -> None:
        group = self._node.group
        if before is not None:
            await asyncio.wait([before])
        if group.held is not None:
            await group.held.wait()
        await asyncio.sleep(0)
        if records and group.is_disk_full:
            self.reload()
            raise Refused(Reason.STORAGE_ERROR, "no space left on device")
        if group.term != term:
            if group.keeps_uncommitted:
                group.commit(records, headers)
            raise Refused(Reason.NOT_LEADER_OR_FOLLOWER)
        self.replica.uncommitted -= len(records)
        if records:
            group.commit(records, headers)


class FakeExchange:
    """Calls reach the other nodes of the group; `lost` says which answers never come back."""

    def __init__(self, node: "FakeNode") -> None:
        self.own = node.number
        self.leaders = LeaderTable()
        self.handlers: dict[str, Handler] = {}
        self.calls: list[tuple[int, str]] = []
        self.reported: list[int] = []
        self.waited_for: list[int] = []
        self.registered: dict[PartitionId, Any] = {}
        # Called with the answer of each call; may raise to lose it.
        self.on_answer: Callable[[str], None] = lambda method: None
        self._node = node

    @property
    def hellos(self) -> dict[BrokerId, Any]:
        return {
            number: SimpleNamespace(directory=node.directory_id)
            for number, node in self._node.group.nodes.items()
            if node.is_up and number != self._node.number
        }

    def is_alive(self, node: BrokerId) -> bool:
        other = self._node.group.nodes.get(node)
        return node == self._node.number or (other is not None and other.is_up)

    def serve(self, method: str, handler: Handler) -> None:
        self.handlers[method] = handler

    async def call(self, node: BrokerId, method: str, payload: bytes, timeout_s: float) -> bytes:
        self.calls.append((node, method))
        if not self.is_alive(node):
            raise Refused(Reason.LEADER_NOT_AVAILABLE, f"node {node} is not connected")
        handler = self._node.group.nodes[node].exchange.handlers[method]
        answer = await handler(self._node.number, payload)
        self.on_answer(method)
        return answer

    def announce(self, key: PartitionId, info: LeaderInfo) -> None:
        """Every node hears of it; of two in one term the first one counts."""
        for node in self._node.group.nodes.values():
            node.exchange.leaders.learn(key, info)

    def add(self, replica: Any) -> None:
        self.registered[replica.key] = replica

    def remove(self, key: PartitionId) -> None:
        del self.registered[key]

    def set_metadata_applied(self, offset: int) -> None:
        self.reported.append(offset)

    def metadata_applied(self, node: BrokerId) -> int:
        return max(self._node.group.nodes[node].exchange.reported, default=0)

    async def wait_metadata_applied(self, offset: int, timeout_s: float) -> bool:
        """Until every node that is up reported it, whether or not it is a broker."""
        self.waited_for.append(offset)
        up = [number for number, node in self._node.group.nodes.items() if node.is_up]
        for _ in range(int(timeout_s * 1000)):
            if all(self.metadata_applied(number) >= offset for number in up):
                return True
            await asyncio.sleep(0.001)
        return False


class FakeNode:
    def __init__(
        self, group: Group, number: int = 0, *, directory: str = "", **settings: str
    ) -> None:
        self.group = group
        self.number = BrokerId(number)
        self.directory_id = DirectoryId(directory or f"dir{number}")
        self.is_up = True
        self.exchange = FakeExchange(self)
        self.feed = FakeFeed(group)
        self.host = FakeHost(self)
        group.nodes[self.number] = self
        clock_s = count()
        self.cluster = Cluster(
            host=self.host,  # type: ignore[arg-type]
            feed=self.feed,  # type: ignore[arg-type]
            exchange=self.exchange,  # type: ignore[arg-type]
            broker_id=self.number,
            directory_id=self.directory_id,
            cluster_id="cluster-of-one",
            founders=[ReplicaId(BrokerId(0), DirectoryId("dir0"))],
            static_broker_config={name.replace("_", "."): text for name, text in settings.items()},
            # Each look at the clock is a tenth of a second later, so that every wait ends.
            clock=SimpleNamespace(now_ms=lambda: 0, monotonic=lambda: next(clock_s) / 10),
            new_uuid=ids_from((len(group.log) + 1) * 1000 + number * 100_000),
            random_below=lambda bound: 0,
            advertised=Endpoint("localhost", 9092),
        )


def ids_from(first: int = 1) -> Callable[[], UUID]:
    """Ids that are the same in every run."""
    numbers = count(first)
    return lambda: UUID(int=next(numbers))


async def start_node(
    group: Group, number: int = 0, *, registers: bool = True, **settings: str
) -> FakeNode:
    """A node with a loaded cluster in which it is registered; the first one leads."""
    node = FakeNode(group, number, **settings)
    if registers and BrokerId(number) not in _registered(group):
        group.log.append(group.codec.encode(BrokerStored(broker=broker(number))))
        for other in group.nodes.values():
            other.feed.follow()
            other.host.reload()
    await node.cluster.load()
    node.exchange.leaders.learn(
        METADATA_KEY, LeaderInfo(Term(group.term), group.leader or BrokerId(0), ())
    )
    return node


def _registered(group: Group) -> dict[BrokerId, Broker]:
    state = ClusterState()
    for stored in group.log:
        state.apply(group.codec.decode(*stored))
    return state.brokers
