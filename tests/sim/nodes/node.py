"""One simulated node: everything that the server builds, but for the sockets."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import UUID

from penstock.cluster.changes import Change, TopicDeleted
from penstock.config import Settings
from penstock.model.endpoint import Endpoint
from penstock.model.errors import StartRefused, StorageDamaged
from penstock.model.ids import BrokerId, PartitionId, ReplicaId, TopicId
from penstock.raft.settings import RaftSettings
from penstock.replication.replica import Replica
from penstock.server import Node, NodeParts
from tests.sim.machine.process import Machine, Process
from tests.sim.replicas.history import History
from tests.sim.replicas.observer import Observer

PATH = Path("/data")
SMALL = {
    "offsets.topic.num.partitions": "2",
    "log.segment.bytes": "2000",
    "log.index.interval.bytes": "100",
}

Histories = Callable[[Replica], History]


def peer_endpoint(node: BrokerId) -> Endpoint:
    return Endpoint(f"node-{node}", 9095)


class SimulatedNode:
    def __init__(
        self,
        machine: Machine,
        *,
        cluster: Mapping[BrokerId, Endpoint],
        join: Endpoint | None,
        raft: RaftSettings,
        history_of: Histories,
    ) -> None:
        self.machine = machine
        self.node = machine.node
        self._settings = Settings(
            data_dir=PATH,
            node=self.node,
            peer=peer_endpoint(self.node),
            cluster=cluster,
            join=join,
            advertise_peer=peer_endpoint(self.node),
            broker=SMALL,
        )
        self._raft = raft
        self._history_of = history_of
        # Hears of topics that are gone.
        self.on_deleted: Callable[[TopicId], None] = lambda _: None
        self.server: Node | None = None
        self.is_registered = False
        # Why it does not run, if its start was refused.
        self.refused: Exception | None = None
        self._observers: dict[PartitionId, Observer] = {}

    @property
    def is_up(self) -> bool:
        return self.machine.process is not None

    @property
    def is_responsive(self) -> bool:
        """Whether a client could reach it."""
        process = self.machine.process
        return process is not None and not process.loop.is_paused and self.is_registered

    def start(self) -> None:
        self.server, self.is_registered, self.refused = None, False, None
        self._observers = {}
        process = self.machine.start()
        process.spawn(self._boot(process))

    def crash(self, *, lost_power: bool) -> None:
        self.machine.crash(lost_power=lost_power)
        self.server, self.is_registered = None, False

    async def _boot(self, process: Process) -> None:
        parts = NodeParts(
            clock=process.clock,
            file_system=process.drive,
            make_network=lambda _secret, _clock: process.network,
            make_executor=lambda _name, threads: process.executor(threads),
            random_below=process.random_below,
            new_uuid=lambda: UUID(int=process.random.getrandbits(128)),
            raft=self._raft,
        )
        server = Node(self._settings, parts)
        try:
            await server.start_services()
            self.server = server
            server.cluster.on_change(self._hear)
            server.partitions.on_added(self._watch)
            for replica in self.replicas():
                self._watch(replica)
            await server.register(Endpoint(f"node-{self.node}", 9092))
        except (StartRefused, StorageDamaged) as refused:
            self.refused = refused
            return
        self.is_registered = True

    def _hear(self, change: Change) -> None:
        if isinstance(change, TopicDeleted):
            self.on_deleted(change.topic.topic_id)

    def replicas(self) -> Iterator[Replica]:
        """Of all partitions that are here, that of the metadata first."""
        if self.server is not None and self.is_up:
            metadata = self.server.partitions.metadata
            if metadata is not None:
                yield metadata
            yield from self.server.partitions.all()

    def replica(self, key: PartitionId) -> Replica | None:
        if self.server is None or not self.is_up:
            return None
        return self.server.partitions.find(key)

    def _watch(self, replica: Replica) -> None:
        observer = Observer(replica, self._history_of(replica))
        self._observers[replica.key] = observer
        replica.on_leadership(observer.look)
        replica.on_advance(observer.look)
        observer.look()

    def look_everywhere(self) -> None:
        for observer in self._observers.values():
            observer.look()

    @property
    def id(self) -> ReplicaId | None:
        return None if self.server is None else self.server.exchange.own


class PartitionAt:
    """A partition at one node, as clients of it see the node."""

    def __init__(self, node: SimulatedNode, find: Callable[[], PartitionId | None]) -> None:
        self._node = node
        self._find = find
        self.machine = node.machine

    @property
    def is_up(self) -> bool:
        return self._node.is_up

    @property
    def replica(self) -> Replica | None:
        key = self._find()
        return None if key is None else self._node.replica(key)

    def leading(self) -> bool:
        replica = self.replica
        return self._node.is_responsive and replica is not None and replica.is_leader
