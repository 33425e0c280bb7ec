"""One simulated node with a replica of each partition, built as the server would build it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
from penstock.replication.replica import Replica
from penstock.replication.store import ReplicaStore
from penstock.replication.throttle import NodeThrottle
from penstock.replication.write_side import WriteSide
from penstock.storage.data_directory import DataDirectory
from penstock.storage.hard_states import HardStates
from penstock.storage.open_files import OpenFiles
from tests.sim.machine.events import EventRing
from tests.sim.machine.process import Machine, Process
from tests.sim.replicas.history import History, Violation, require
from tests.sim.replicas.observer import Observer
from tests.sim.replicas.promises import CheckedExchange, Promises

PATH = Path("/data")
CLUSTER = "simulated"
MAKE_RETRY_S = 1.0
# For so long after a disk was lost, what it had acknowledged may still be on its way.
LOST_DISK_COUNTS_S = 5.0
TOPIC_ID = TopicId(UUID(int=7))
TOPIC = TopicName("orders")


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
        histories: Sequence[History],
    ) -> None:
        self.machine = machine
        self.node = machine.node
        # The last things that happened to it, for anyone who looks at a run that failed.
        self.events = EventRing()
        self._founders = founders
        self._config = config
        self._raft = raft
        # One for each partition.
        self._histories = histories
        # What it may send in a second to replicas that catch up, and what others may receive of it.
        self.rate: int | None = None
        self._throttle = NodeThrottle()
        # Counts the disks: each is a directory with a name of its own.
        self._disks = 1
        # Who should belong to the group, as the metadata would say.
        self.wanted: Sequence[ReplicaId] = ()
        self.peers: Mapping[BrokerId, Endpoint] = {}
        # One for each partition, once it has started.
        self.replicas: Sequence[Replica] = ()
        # How far each log was on disk when its replica was seen last, and before its disk was lost.
        self._stored: list[int] = [0] * len(histories)
        self._stored_lost: list[int] = [0] * len(histories)
        self._lost_at = 0.0
        # Hears when it stands for election.
        self.on_election: Callable[[SimulatedNode], None] = lambda _: None
        # Has every node looked at closely, so that the history knows all that is committed.
        self.look_everywhere: Callable[[], None] = lambda: None
        # Why it does not run, if its disk is to blame.
        self.damage: Exception | None = None
        self._observers: list[Observer] = []
        machine.after_death = self._look_closely

    @property
    def id(self) -> ReplicaId:
        return ReplicaId(self.node, DirectoryId(f"d{self.node}-{self._disks}"))

    @property
    def is_up(self) -> bool:
        return self.machine.process is not None

    @property
    def is_stopped(self) -> bool:
        """Whether it runs without its replica, for want of a disk to trust."""
        return self.damage is not None or any(
            replica.stopped_because is not None for replica in self.replicas
        )

    def replica(self, partition: int) -> Replica | None:
        return self.replicas[partition] if self.replicas else None

    def is_electing(self) -> bool:
        return any(
            replica.stopped_because is None
            and replica._node.role in (Role.PRE_CANDIDATE, Role.CANDIDATE)
            for replica in self.replicas
        )

    def leads(self, partition: int) -> bool:
        """As far as it knows itself."""
        process = self.machine.process
        return (
            process is not None
            and not process.loop.is_paused
            and bool(self.replicas)
            and self.replicas[partition].is_leader
        )

    def leading(self) -> list[int]:
        """The partitions that it leads."""
        return [partition for partition in range(len(self._histories)) if self.leads(partition)]

    def holds(self, partition: int, index: int) -> bool:
        """Whether the index is, or was a moment ago, on this node's disk for sure."""
        self._note_stored()
        was_here = self.machine.world.now < self._lost_at + LOST_DISK_COUNTS_S
        return self._stored[partition] >= index or (
            was_here and self._stored_lost[partition] >= index
        )

    def _note_stored(self) -> None:
        for partition, replica in enumerate(self.replicas):
            if replica._has_log:
                self._stored[partition] = replica._node.stable_index

    def _look_closely(self) -> None:
        """It has just died: what it knows must not be lost to the history."""
        self.note("is dead")
        self._note_stored()
        for observer in self._observers:
            observer.look(closely=True)

    def note(self, event: str) -> None:
        self.events.note(self.machine.world.now, event)

    def start(self) -> None:
        self.note("starts")
        self._note_stored()
        self.replicas, self._observers = (), []
        self.damage = None
        process = self.machine.start()
        process.spawn(self._boot(process))

    def replace_disk(self) -> None:
        assert not self.is_up
        self.machine.replace_drive()
        self._disks += 1
        self.note(f"has a new disk, {self.id.directory}")
        self._lost_at = self.machine.world.now
        self._stored_lost, self._stored = self._stored, [0] * len(self._stored)

    async def _boot(self, process: Process) -> None:
        try:
            self.replicas = await self._build(process)
        except (StorageDamaged, StartRefused) as damage:
            if process.drive.is_sound:
                raise Violation(f"{self.id} takes its whole disk for damaged: {damage}") from damage
            self.damage = damage
            self.note(f"can't start: {damage}")
            return
        except OSError as error:
            # A process that can't read its own files ends; an operator starts it again.
            self.damage = error
            return
        self.observe()

    async def _make(self, store: ReplicaStore) -> list[Replica]:
        """As a broker does it: a disk that is full, or fails for a moment, is tried again."""
        indices = [PartitionIndex(number) for number in range(len(self._histories))]
        partitions = [TopicPartition(TOPIC, index) for index in indices]
        founders = dict.fromkeys(indices, self._founders)
        while True:
            try:
                return await store.create(partitions, TOPIC_ID, self._config, founders)
            except OSError:
                await asyncio.sleep(MAKE_RETRY_S)

    async def _build(self, process: Process) -> list[Replica]:
        drive, clock, limits = process.drive, process.clock, Limits()
        executor = process.executor(4)
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
            executor=executor,
            background=process.executor(1),
            write_side=WriteSide(executor),
            limits=limits,
            own=own,
            outbound=exchange,
            hard_states=HardStates.open(directory.hard_states_path, file_system=drive),
            random_below=process.random_below,
            raft_settings=self._raft,
        )
        exchange.on_tick(store.tick)
        self._throttle = store.throttle
        self._set_rates()
        replicas = await self._make(store)
        for replica, history in zip(replicas, self._histories, strict=True):
            exchange.add(replica)
            self._watch(replica, history, exchange.promises)
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
        return replicas

    def _watch(self, replica: Replica, history: History, promises: Promises) -> None:
        stored = promises.hard_state(replica.key)
        if replica.stopped_because is None:
            require(
                replica._node.term > stored.term or replica._node._core.hard_state == stored,
                f"{replica.id} starts without the vote {stored} that it has on disk",
            )
        drive = self.machine.drive
        observer = Observer(replica, history, is_damaged=lambda: drive.is_damaged)
        self._observers.append(observer)
        if replica.stopped_because is None:
            observer.require_no_doubt()

        def led() -> None:
            if replica.stopped_because is not None:
                self.note(f"{replica.key.partition}: stopped: {replica.stopped_because}")
            else:
                core = replica._node
                self.note(
                    f"{replica.key.partition}: {core.role.name.lower()} of term {core.term}, "
                    f"leader {core.leader}, log {replica._log.first_index} to {core.last_index}, "
                    f"commit {core.commit_index}"
                )
            look()

        def look() -> None:
            observer.look()
            if observer.begins_late:
                self.look_everywhere()
                observer.require_agreed_start()
            if self.is_electing():
                self.on_election(self)

        replica.on_leadership(led)
        replica.on_advance(look)
        replica.set_wanted(self.wanted)

    def crash(self, *, lost_power: bool) -> None:
        self.note("loses its power" if lost_power else "is killed")
        self._note_stored()
        self.machine.crash(lost_power=lost_power)
        self.replicas, self._observers = (), []

    def end(self) -> None:
        """The run is over, and nobody looks any more."""
        self._observers = []
        self.crash(lost_power=False)

    def in_loop(self, action: Callable[[], object]) -> None:
        assert self.machine.process is not None
        self.machine.process.loop.call_soon(action)

    def set_clock_right(self) -> None:
        if self.machine.process is not None:
            self.machine.process.clock.skew_ms = 0

    def throttle(self, rate: int | None) -> None:
        self.rate = rate
        if self.is_up:
            self.in_loop(self._set_rates)

    def _set_rates(self) -> None:
        others = {} if self.rate is None else dict.fromkeys(self.peers, float(self.rate))
        self._throttle.set_rates(self.rate, others)

    def upkeep(self) -> None:
        process = self.machine.process
        assert process is not None
        for replica in self.replicas:
            process.spawn(replica.maintain(process.clock.now_ms()))

    def delete_records(self, partition: int, share: float) -> None:
        """Of what is committed, this share."""
        process = self.machine.process
        assert process is not None
        process.spawn(_delete_records(self.replicas[partition], share))

    def describe(self) -> str:
        if not self.replicas:
            return f"{self.id}: {'up' if self.is_up else 'down'}, no replica, {self.damage}"
        return "\n  ".join(self._describe(replica) for replica in self.replicas)

    def _describe(self, replica: Replica) -> str:
        if replica.stopped_because is not None:
            return f"{self.id}: stopped: {replica.stopped_because}"
        core = replica._node
        return (
            f"{self.id}: {core.role} of term {core.term}, leader {core.leader}, indices "
            f"{replica._log.first_index} (offset {replica.log_start_offset}) to "
            f"{core.last_index}, stable {core.stable_index}, commit {core.commit_index}, "
            f"applied {replica._applied_index}, settled "
            f"{replica.is_settled}, {core.membership}, wanted {self.wanted}, {core.replicas()}"
        )

    def want(self, voters: Sequence[ReplicaId]) -> None:
        self.wanted = voters
        if self.is_up:
            for replica in self.replicas:
                self.in_loop(partial(replica.set_wanted, voters))

    def observe(self, *, closely: bool = False) -> None:
        process = self.machine.process
        if process is not None and not process.loop.is_dead:
            for observer in self._observers:
                observer.look(closely=closely)


async def _delete_records(replica: Replica, share: float) -> None:
    start, end = replica.log_start_offset, replica.high_watermark
    try:
        await replica.delete_records(start + int((end - start) * share))
    except Refused:
        return
