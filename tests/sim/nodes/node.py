"""One simulated node: everything that the server builds, but for the sockets."""

import asyncio
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.broker.doors import PASSED_ON
from penstock.broker.doors.desk import Desk
from penstock.broker.doors.table import make_desk
from penstock.broker.services import Services
from penstock.cluster.broker_settings import RACK_AWARE_SELECTOR
from penstock.cluster.changes import Change, TopicDeleted
from penstock.config import Settings
from penstock.frontdoor.kafka.fetch_sessions import FetchSessions
from penstock.groups.partitioner import partition_of
from penstock.model.endpoint import Endpoint
from penstock.model.errors import StartRefused
from penstock.model.ids import BrokerId, GroupId, PartitionId, ReplicaId, TopicId
from penstock.raft.settings import RaftSettings
from penstock.replication.replica import Replica
from penstock.server import Node, NodeParts
from penstock.storage import repair
from penstock.storage.checkpoint import read_checkpoint
from penstock.storage.data_directory import DataDirectory
from penstock.storage.log import Log
from tests.sim.machine.events import EventRing
from tests.sim.machine.process import Machine, Process
from tests.sim.replicas.history import History, require
from tests.sim.replicas.observer import Observer

PATH = Path("/data")
OFFSETS_PARTITIONS = 2
SMALL = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "log.segment.bytes": "2000",
    "log.index.interval.bytes": "100",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1500",
    "group.share.delivery.count.limit": "10",
    "replica.selector.class": RACK_AWARE_SELECTOR,
}
# How long a stop may take: a hand-over and the clients that wait have bounds, disks are slow.
STOP_S_MAX = 30.0
DRAIN_S_MAX = 10.0

Histories = Callable[[Replica], History]
Lost = Callable[[], object]


def _nobody() -> None:
    """Nobody waits for the answer."""


def peer_endpoint(node: BrokerId) -> Endpoint:
    return Endpoint(f"node-{node}", 9095)


def rack_of(node: BrokerId) -> str:
    """Every node stands in its own."""
    return f"rack-{node}"


class SimulatedNode:
    def __init__(
        self,
        machine: Machine,
        *,
        cluster: Mapping[BrokerId, Endpoint],
        join: Endpoint | None,
        raft: RaftSettings,
        snapshot_records: int,
        history_of: Histories,
        broker: Mapping[str, str] = SMALL,
        state_records_max: int | None = None,
    ) -> None:
        self.machine = machine
        machine.after_death = self._died
        self.node = machine.node
        self._settings = Settings(
            data_dir=PATH,
            node=self.node,
            peer=peer_endpoint(self.node),
            cluster=cluster,
            join=join,
            advertise_peer=peer_endpoint(self.node),
            broker=broker,
            rack=rack_of(self.node),
        )
        self._raft = raft
        self._snapshot_records = snapshot_records
        self._history_of = history_of
        # How long the logs of share coordinators get before they are shortened.
        self._state_records_max = state_records_max
        # Hears of topics that are gone.
        self.on_deleted: Callable[[TopicId], None] = lambda _: None
        # Sees what a process leaves behind, whatever ends it.
        self.before_end: Callable[[SimulatedNode], None] = lambda _: None
        self.server: Node | None = None
        # What doors in a process of their own would ask.
        self.desk: Desk | None = None
        # Those of the process that runs now: a door would have them.
        self._fetch_sessions: FetchSessions | None = None
        self.is_registered = False
        # Why it does not run, if its start was refused.
        self.refused: Exception | None = None
        self._observers: dict[PartitionId, Observer] = {}
        # What it serves, and who hears if the connection ends before the answer.
        self._requests: dict[asyncio.Task[None], Lost] = {}
        self.is_stopping = False
        self.stops = 0
        self.events = EventRing()

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
        self._observers, self._requests, self.is_stopping = {}, {}, False
        self._fetch_sessions = None
        self._note("starts")
        process = self.machine.start()
        process.spawn(self._boot(process))

    def fetch_sessions(self, services: Services) -> FetchSessions:
        if self._fetch_sessions is None:
            self._fetch_sessions = FetchSessions(
                make_reader=services.fetch.reader,
                clock=services.clock,
                sessions_max=services.limits.fetch_sessions_max,
            )
        return self._fetch_sessions

    def crash(self, *, lost_power: bool) -> None:
        if self.is_up:
            self._note("ends without power" if lost_power else "ends")
        if not lost_power:
            self._lose_connections()
        self.machine.crash(lost_power=lost_power)
        self.server, self.is_registered = None, False

    def _lose_connections(self) -> None:
        """Anyone who waits for an answer sees the process end, unless the whole machine does."""
        for lost in self._requests.values():
            self.machine.world.after(self.machine.switch.delay(), lost)
        self._requests = {}

    def _died(self) -> None:
        """What it knew must not be lost to the history."""
        self.look_everywhere()
        self.before_end(self)

    def stop(self, *, lost_power: bool) -> None:
        """As SIGTERM does; what is safe then stays so, even if the power goes at once."""
        process = self.machine.process
        if process is None or not self.is_registered or self.is_stopping:
            return
        self.is_stopping = True
        self._note("stops")
        process.spawn(self._stop(process, lost_power))
        self.machine.world.after(STOP_S_MAX, self._check_stopped, process)

    async def _stop(self, process: Process, lost_power: bool) -> None:
        assert self.server is not None
        replicas = [each for each in self.replicas() if each.stopped_because is None]
        refusals, begun = process.drive.refusals, self.machine.world.now
        # As `Node.stop`, but in steps: the stack itself would go on after the death of its process.
        steps = self.server._built.pop_all()._exit_callbacks  # type: ignore[attr-defined]
        while steps:
            await steps.pop()[1](None, None, None)
        # Not from inside of the process.
        is_disk_fine = process.drive.refusals == refusals and self.machine.disk_hangs_until < begun
        closed = replicas if is_disk_fine else []
        self.machine.world.after(0.0, self._stopped, process, closed, lost_power)

    def _stopped(self, process: Process, replicas: list[Replica], lost_power: bool) -> None:
        if self.machine.process is not process:
            return
        self.stops += 1
        for replica in replicas:
            if replica.stopped_because is None and self._is_still_here(replica):
                self._check_closed(replica._log)
        self.crash(lost_power=lost_power)

    def _is_still_here(self, replica: Replica) -> bool:
        """Whether it did not move away and its topic was not deleted meanwhile."""
        assert self.server is not None
        return replica is self.metadata() or self.replica(replica.key) is replica

    def _check_closed(self, log: Log) -> None:
        """The next start has nothing to look through: all records lie before the flush mark."""
        directory = log._state.directory
        flushed = read_checkpoint(self.machine.drive, directory).flushed_offset
        require(
            flushed == log.end_offset,
            f"{directory} of node {self.node} was closed at {flushed}, not at {log.end_offset}",
        )

    def _check_stopped(self, process: Process) -> None:
        is_running = self.machine.process is process and not process.loop.is_paused
        require(not is_running, f"node {self.node} did not stop within {STOP_S_MAX} s")

    def rot(self) -> bool:
        """One bit of any file flips; False if there is no file."""
        kinds: dict[str, list[Path]] = {}
        for path in self.files():
            kinds.setdefault(path.suffix or path.name, []).append(path)
        if kinds:
            # Most files are those of logs, and the others matter no less.
            random = self.machine.world.random
            self.flip_bit(random.choice(kinds[random.choice(sorted(kinds))]))
        return bool(kinds)

    def files(self, ending: str = "") -> list[Path]:
        drive = self.machine.drive
        return [path for path in drive.files(ending) if drive.size(path)]

    def flip_bit(self, path: Path) -> None:
        assert not self.is_up
        self.machine.drive.flip_bit(path, self.machine.world.random)
        self._note(f"a bit of {path} flips")

    def repair(self) -> None:
        """As an operator would who was sent to the how-to: cuts damaged logs, and where that can't
        be done puts an empty disk in place of the bad one."""
        assert not self.is_up
        drive = self.machine.drive
        try:
            opened = DataDirectory.open_stopped(PATH, file_system=drive)
            for log in opened.log_directories():
                for damage in repair.cut(log, drive):
                    self._note(f"is repaired: {damage}")
            opened.close()
        except StartRefused as refused:
            self._note(f"can't be repaired: {refused}")
            self.machine.replace_drive()

    def ask(self, request: Coroutine[Any, Any, None], lost: Lost = _nobody) -> None:
        """Serves a client, as the door would."""
        process = self.machine.process
        assert process is not None
        task = process.spawn(request)
        self._requests[task] = lost
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        lost = self._requests.pop(task, _nobody)
        if task.cancelled():
            lost()
            return
        error = task.exception()
        if error is not None:
            # A promise that was broken, or a bug.
            self.machine.world.failures.append("".join(traceback.format_exception(error)))

    async def _drain(self) -> None:
        """As the door does: nobody is let in, and anyone who waits is answered."""
        self.is_registered = False
        if self._requests:
            await asyncio.wait(list(self._requests), timeout=DRAIN_S_MAX)
        for request in list(self._requests):
            request.cancel()

    async def _boot(self, process: Process) -> None:
        parts = NodeParts(
            clock=process.clock,
            file_system=process.drive,
            make_network=lambda _secret, _clock: process.network,
            make_executor=lambda _name, threads: process.executor(threads),
            random_below=process.random_below,
            new_uuid=lambda: UUID(int=process.random.getrandbits(128)),
            raft=self._raft,
            snapshot_records=self._snapshot_records,
        )
        server = Node(self._settings, parts)
        try:
            await server.start_services()
            self.server = server
            self._open_desk(server)
            server.cluster.on_change(self._hear)
            server.cluster._feed.on_applied(self._applied)
            server.partitions.on_added(self._watch)
            for replica in self.replicas():
                self._watch(replica)
            server._on_stop(self._drain)
            await server.register(Endpoint(f"node-{self.node}", 9092))
        except (StartRefused, OSError) as refused:
            # A process that can't use its files ends; an operator starts it again.
            self.refused = refused
            self._note(f"can't start: {refused}")
            return
        self.is_registered = True
        self._note("is registered")

    def _open_desk(self, server: Node) -> None:
        desk = self.desk = make_desk(self.node, server.services, server.exchange)

        async def passed_on(_: BrokerId, payload: bytes) -> bytes:
            return await desk.serve_passed_on(payload)

        server.exchange.serve(PASSED_ON, passed_on)

    def _note(self, event: str) -> None:
        self.events.note(self.machine.world.now, event)

    def _applied(self, records: Sequence[object], offset: int) -> None:
        assert self.server is not None
        self.server.cluster._feed.state.validate()
        self._note(f"applies metadata up to {offset}: {[type(each).__name__ for each in records]}")

    def validate_groups(self) -> None:
        """What this node's coordinators know must make sense; an inactive one knows nothing."""
        if self.server is None or not self.is_registered:
            return
        for coordinator in self.server.services.groups._coordinators.values():
            if coordinator.is_active:
                coordinator._host.state.validate()
                coordinator.validate()

    def validate_queues(self) -> None:
        """What this node's share coordinators know, and what it knows of the queues it leads."""
        if self.server is None or not self.is_registered:
            return
        queues = self.server.services.queues
        for coordinator in queues._coordinators._coordinators.values():
            if self._state_records_max is not None:
                coordinator._log_records_max = self._state_records_max
            if coordinator.is_active:
                coordinator._host.state.validate()
        for queue in queues._led.values():
            if queue._machine is not None:
                queue._machine.validate()

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

    def opens(self, key: PartitionId) -> bool:
        """Whether it holds a replica that it has not read yet: a slow disk takes its time."""
        here = self.server is not None and self.server.partitions.was_here(key)
        return here and self.replica(key) is None

    def leads(self, key: PartitionId) -> bool:
        replica = self.replica(key)
        return self.is_responsive and replica is not None and replica.is_leader

    def metadata(self) -> Replica | None:
        if self.server is None or not self.is_up:
            return None
        return self.server.partitions.metadata

    def group_log(self, group: GroupId) -> Replica | None:
        """The replica that a group's coordinator writes to."""
        if self.server is None or not self.is_up:
            return None
        coordinators = self.server.services.groups._coordinators
        coordinator = coordinators.get(partition_of(group, OFFSETS_PARTITIONS))
        return None if coordinator is None else coordinator.replica

    def _watch(self, replica: Replica) -> None:
        drive = self.machine.drive
        history = self._history_of(replica)
        observer = Observer(replica, history, is_damaged=lambda: drive.is_damaged)
        self._observers[replica.key] = observer
        replica.on_leadership(partial(self._note_leadership, replica))
        replica.on_leadership(partial(observer.look, closely=True))
        replica.on_advance(observer.look)
        observer.look()

    def _note_leadership(self, replica: Replica) -> None:
        if replica.stopped_because is not None:
            self._note(f"{replica.partition} stopped: {replica.stopped_because}")
        else:
            core = replica._node
            self._note(f"{replica.partition} is {core.role.name} of {core.term} by {core.leader}")

    def look_everywhere(self) -> None:
        for observer in self._observers.values():
            observer.look(closely=True)

    @property
    def id(self) -> ReplicaId | None:
        return None if self.server is None else self.server.exchange.own
