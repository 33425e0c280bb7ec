"""One simulated node with a replica of the only partition, built as the server would build it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from penstock.model.endpoint import Endpoint
from penstock.model.errors import Refused, StartRefused, StorageDamaged
from penstock.model.ids import (
    BrokerId,
    DirectoryId,
    PartitionIndex,
    ReplicaId,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.model.limits import Limits
from penstock.model.peers import PEER_VERSION, PeerHello
from penstock.model.topic_config import TopicConfig
from penstock.net.occasional_log import OccasionalLog
from penstock.raft.ready import Role
from penstock.raft.settings import RaftSettings
from penstock.replication.disk_deadline import DiskDeadline
from penstock.replication.replica import Replica
from penstock.replication.store import ReplicaStore
from penstock.storage.data_directory import DataDirectory
from penstock.storage.hard_states import HardStates
from penstock.storage.open_files import OpenFiles
from tests.sim.machine.process import Machine, Process
from tests.sim.replicas.history import History, require
from tests.sim.replicas.observer import Observer
from tests.sim.replicas.promises import CheckedExchange, Promises

PATH = Path("/data")
CLUSTER = "simulated"
MAKE_RETRY_S = 1.0
TOPIC_ID = TopicId(UUID(int=7))
PARTITION = TopicPartition(TopicName("orders"), PartitionIndex(0))


def endpoint_of(node: BrokerId) -> Endpoint:
    return Endpoint(f"node-{node}", 9095)


class SimulatedNode:
    def __init__(
        self,
        machine: Machine,
        *,
        founders: Sequence[ReplicaId],
        config: TopicConfig,
        raft: RaftSettings,
        history: History,
    ) -> None:
        self.machine = machine
        self.node = machine.node
        self._founders = founders
        self._config = config
        self._raft = raft
        self._history = history
        # Counts the disks: each is a directory with a name of its own.
        self._disks = 1
        # Who should belong to the group, as the metadata would say.
        self.wanted: Sequence[ReplicaId] = ()
        self.peers: Mapping[BrokerId, Endpoint] = {}
        self.replica: Replica | None = None
        # Hears when it stands for election.
        self.on_election: Callable[[SimulatedNode], None] = lambda _: None
        # Why it does not run, if its disk is to blame.
        self.damage: Exception | None = None
        self._observer: Observer | None = None

    @property
    def id(self) -> ReplicaId:
        return ReplicaId(self.node, DirectoryId(f"d{self.node}-{self._disks}"))

    @property
    def is_up(self) -> bool:
        return self.machine.process is not None

    @property
    def is_stopped(self) -> bool:
        """Whether it runs without its replica, for want of a disk to trust."""
        replica = self.replica
        return self.damage is not None or (
            replica is not None and replica.stopped_because is not None
        )

    def is_electing(self) -> bool:
        replica = self.replica
        return (
            replica is not None
            and replica.stopped_because is None
            and replica._node.role in (Role.PRE_CANDIDATE, Role.CANDIDATE)
        )

    def leading(self) -> bool:
        """As far as it knows itself."""
        process, replica = self.machine.process, self.replica
        return (
            process is not None
            and not process.loop.is_paused
            and replica is not None
            and replica.is_leader
        )

    def start(self) -> None:
        self.replica = None
        self.damage = None
        process = self.machine.start()
        process.spawn(self._boot(process))

    def replace_disk(self) -> None:
        assert not self.is_up
        self.machine.replace_drive()
        self._disks += 1

    async def _boot(self, process: Process) -> None:
        try:
            replica = await self._build(process)
        except (StorageDamaged, StartRefused) as damage:
            self.damage = damage
            return
        self.damage = replica.stopped_because
        self.replica = replica
        self.observe()

    async def _make(
        self, store: ReplicaStore, founders: Mapping[int, Sequence[ReplicaId]]
    ) -> Replica:
        """As a broker does it: a disk that is full, or fails for a moment, is tried again."""
        while True:
            try:
                (replica,) = await store.create([PARTITION], TOPIC_ID, self._config, founders)
            except OSError:
                await asyncio.sleep(MAKE_RETRY_S)
            else:
                return replica

    async def _build(self, process: Process) -> Replica:
        drive, clock, limits = process.drive, process.clock, Limits()
        directory = DataDirectory.open(
            PATH,
            node=self.node,
            file_system=drive,
            make_directory_id=lambda: self.id.directory,
        )
        assert directory.directory_id == self.id.directory
        own = ReplicaId(self.node, directory.directory_id)
        exchange = CheckedExchange(own=own, network=process.network, log=OccasionalLog(clock))
        exchange.promises = Promises(process, directory, self._config)
        store = ReplicaStore(
            directory=directory,
            file_system=drive,
            open_files=OpenFiles(drive, 100),
            clock=clock,
            executor=process.executor(4),
            background=process.executor(1),
            disk_deadline=DiskDeadline(),
            limits=limits,
            own=own,
            outbound=exchange,
            hard_states=HardStates.open(directory.hard_states_path, file_system=drive),
            random_below=process.random_below,
            raft_settings=self._raft,
        )
        exchange.on_tick(store.tick)
        founders = {PARTITION.partition: self._founders}
        replica = await self._make(store, founders)
        exchange.add(replica)
        stored = exchange.promises.hard_state(replica.key)
        if replica.stopped_because is None:
            require(
                replica._node.term > stored.term or replica._node._core.hard_state == stored,
                f"{own} starts without the vote {stored} that it has on disk",
            )
        self._observer = Observer(replica, self._history)
        replica.on_leadership(self.observe)
        replica.on_advance(self.observe)
        replica.set_wanted(self.wanted)
        hello = PeerHello(
            PEER_VERSION,
            CLUSTER,
            self.node,
            own.directory,
            directory.incarnation,
            endpoint_of(self.node),
        )
        process.network.start(hello, exchange)
        process.network.set_peers(self.peers)
        exchange.start()
        return replica

    def crash(self, *, lost_power: bool) -> None:
        self.machine.crash(lost_power=lost_power)
        self.replica = None

    def in_loop(self, action: Callable[[], object]) -> None:
        assert self.machine.process is not None
        self.machine.process.loop.call_soon(action)

    def set_clock_right(self) -> None:
        if self.machine.process is not None:
            self.machine.process.clock.skew_ms = 0

    def upkeep(self) -> None:
        process, replica = self.machine.process, self.replica
        assert process is not None
        assert replica is not None
        process.spawn(replica.maintain(process.clock.now_ms()))

    def delete_records(self, share: float) -> None:
        """Of what is committed, this share."""
        process, replica = self.machine.process, self.replica
        assert process is not None
        assert replica is not None
        process.spawn(_delete_records(replica, share))

    def describe(self) -> str:
        replica = self.replica
        if replica is None:
            return f"{self.id}: {'up' if self.is_up else 'down'}, no replica, {self.damage}"
        if replica.stopped_because is not None:
            return f"{self.id}: stopped: {replica.stopped_because}"
        core = replica._node
        return (
            f"{self.id}: {core.role} of term {core.term}, leader {core.leader}, indices "
            f"{replica._log.first_index} to {core.last_index}, stable {core.stable_index}, "
            f"commit {core.commit_index}, applied {replica._applied_index}, settled "
            f"{replica.is_settled}, {core.membership}, wanted {self.wanted}, {core.replicas()}"
        )

    def want(self, voters: Sequence[ReplicaId]) -> None:
        self.wanted = voters
        if self.is_up and self.replica is not None:
            replica = self.replica
            self.in_loop(lambda: replica.set_wanted(voters))

    def observe(self, *, closely: bool = False) -> None:
        if self._observer is not None:
            self._observer.look(closely=closely)
            if self.is_electing():
                self.on_election(self)


async def _delete_records(replica: Replica, share: float) -> None:
    start, end = replica.log_start_offset, replica.high_watermark
    try:
        await replica.delete_records(start + int((end - start) * share))
    except Refused:
        return
