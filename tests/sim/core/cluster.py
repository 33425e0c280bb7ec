"""A simulated cluster of one group: events in order of simulated time, checked after each."""

from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import NamedTuple

from penstock.model.ids import BrokerId, DirectoryId, LogIndex, ReplicaId, Term
from penstock.raft.entries import EntryKind
from penstock.raft.membership import Membership
from penstock.raft.messages import (
    AppendRejection,
    AppendRequest,
    CommitNotice,
    Heartbeat,
    Message,
)
from penstock.raft.node import RaftNode
from penstock.raft.ready import Ready, Role
from penstock.raft.settings import RaftSettings
from tests.sim.core.invariants import Invariants
from tests.sim.core.network import SimulatedNetwork
from tests.sim.core.replica import SimulatedReplica

TICK = 10


class Beat(NamedTuple):
    """A heartbeat of a pair of nodes, as far as this group is concerned."""

    sender: ReplicaId
    to: ReplicaId
    term: Term


class BeatAnswer(NamedTuple):
    sender: ReplicaId
    to: ReplicaId
    term: Term
    accepted: bool


class Arrival(NamedTuple):
    message: Message | Beat | BeatAnswer


class Synced(NamedTuple):
    replica: SimulatedReplica
    incarnation: int
    number: int


class Tick(NamedTuple):
    replica: SimulatedReplica
    incarnation: int


class Resume(NamedTuple):
    replica: SimulatedReplica
    incarnation: int


Event = Arrival | Synced | Tick | Resume


class Cluster:
    def __init__(self, random: Random, *, voters: int, spares: int) -> None:
        self.random = random
        self.network = SimulatedNetwork(self.random)
        self.now = 0
        self._events: list[tuple[int, int, Event]] = []
        self._order = count()
        self._directories = count(1)
        self.settings = RaftSettings(
            election_ticks=self.random.choice((3, 4)),
            heartbeats_by_host=self.random.random() < 0.5,
            append_bytes_max=self.random.choice((10, 40, 1000)),
            appends_in_flight_max=self.random.choice((1, 2, 8)),
            bytes_in_flight_max=self.random.choice((30, 1000)),
            uncommitted_bytes_max=self.random.choice((50, 1000)),
            hurry_ticks_max=2,
            snapshot_wait_rounds_max=2,
        )
        self.slow_disk = self.random.choice((2, 10, 40))
        names = [self._new_id(BrokerId(number + 1)) for number in range(voters + spares)]
        self.first = Membership(frozenset(names[:voters]))
        self.invariants = Invariants()
        # By identity; one whose directory was lost is not here any more.
        self.replicas: dict[ReplicaId, SimulatedReplica] = {}
        # What such a one acknowledged before counts still: it is the one loss that is survived.
        self._lost: dict[ReplicaId, SimulatedReplica] = {}
        self.nodes = [name.node for name in names]
        self._reads: dict[object, int] = {}
        self.acknowledged: dict[object, LogIndex] = {}
        self.reads_served = 0
        self._operations = count()
        self.steps = 0
        for name in names:
            self._create(name)

    def _new_id(self, node: BrokerId) -> ReplicaId:
        return ReplicaId(node, DirectoryId(f"d{next(self._directories)}"))

    def _create(self, name: ReplicaId) -> SimulatedReplica:
        replica = SimulatedReplica(name, self.first, self.settings, self.random)
        self.replicas[name] = replica
        self.start(replica)
        return replica

    # Faults

    def start(self, replica: SimulatedReplica) -> None:
        replica.start()
        self._schedule(self.random.randint(1, TICK), Tick(replica, replica.incarnation))
        self._settle(replica)

    def crash(self, replica: SimulatedReplica) -> None:
        replica.crash()

    def replace_directory(self, replica: SimulatedReplica) -> None:
        """The node comes back with an empty disk, so as somebody else."""
        replica.node = None
        self._lost[replica.id] = self.replicas.pop(replica.id)
        self._create(self._new_id(replica.id.node))

    def pause(self, replica: SimulatedReplica, duration: int) -> None:
        """The process stands still; when it goes on, what arrived meanwhile waits in line."""
        replica.paused_until = self.now + duration
        self._schedule(duration, Resume(replica, replica.incarnation))

    def _on_resume(self, event: Resume) -> None:
        """The first thing that a process does may be to serve a client it had taken before."""
        replica = event.replica
        if replica.node is not None and replica.incarnation == event.incarnation:
            self.read(replica, ("read after pause", next(self._operations)))
            self.propose(replica, ("after pause", next(self._operations)))

    def alive(self) -> list[SimulatedReplica]:
        return [replica for replica in self.replicas.values() if replica.node is not None]

    def lost_identities(self, membership: Membership) -> list[ReplicaId]:
        return sorted(name for name in membership.members if name not in self.replicas)

    # Time

    def _schedule(self, delay: int, event: Event) -> None:
        heappush(self._events, (self.now + delay, next(self._order), event))

    def run_until(self, moment: int) -> None:
        while self._events and self._events[0][0] <= moment:
            self.now, _, event = heappop(self._events)
            self.steps += 1
            if isinstance(event, Arrival):
                self._on_arrival(event)
            elif isinstance(event, Tick):
                self._on_tick(event)
            elif isinstance(event, Synced):
                self._on_synced(event)
            else:
                self._on_resume(event)
        self.now = moment

    def _on_tick(self, event: Tick) -> None:
        replica = event.replica
        if replica.node is None or replica.incarnation != event.incarnation:
            return
        if self._waits(replica, event):
            return
        self._schedule(replica.tick_period, event)
        touched = replica.node.tick()
        if self.settings.heartbeats_by_host and replica.node.role is Role.LEADER:
            for member in sorted(replica.node.membership.members - {replica.id}):
                self.send(Beat(replica.id, member, replica.node.term))
        if touched:
            self._settle(replica)

    def _on_synced(self, event: Synced) -> None:
        replica = event.replica
        if replica.node is not None and replica.incarnation == event.incarnation:
            if self._waits(replica, event):
                return
            if all(write.number > event.number for write in replica.disk.under_way):
                return
            replica.disk.finish(event.number)
            replica.node.persisted(event.number)
            self._settle(replica)

    def _waits(self, replica: SimulatedReplica, event: Event) -> bool:
        if self.now < replica.paused_until:
            self._schedule(replica.paused_until - self.now, event)
            return True
        return False

    def _on_arrival(self, event: Arrival) -> None:
        message = event.message
        replica = self.replicas.get(message.to)
        if replica is None or replica.node is None or self._waits(replica, event):
            return
        node = replica.node
        if isinstance(message, Beat):
            accepted = node.heartbeat_received(message.sender, message.term)
            self.send(BeatAnswer(message.to, message.sender, message.term, accepted))
        elif isinstance(message, BeatAnswer):
            if message.accepted:
                node.heartbeat_acknowledged(message.sender, message.term)
            else:
                node.heartbeat_refused(message.sender, message.term)
        else:
            if isinstance(message, (AppendRequest, CommitNotice, Heartbeat)):
                replica.heard_committed = max(replica.heard_committed, message.commit_index)
            node.step(message)
        self._settle(replica)

    def send(self, message: Message | Beat | BeatAnswer) -> None:
        if isinstance(message, AppendRejection):
            message = self._vaguer(message)
        for delay in self.network.delays(message.sender.node, message.to.node):
            self._schedule(delay, Arrival(message))

    def _vaguer(self, message: AppendRejection) -> AppendRejection:
        """A hint that is too low costs time only. It often lies inside of an entry."""
        lowest = max(0, message.hint_index - self.random.choice((0, 0, 3)))
        return message._replace(
            hint_index=LogIndex(self.random.randint(lowest, message.hint_index))
        )

    def tell_of_death(self, replica: SimulatedReplica) -> None:
        """The others see that the connections to a process that died are refused."""
        turn = self.random.randrange(3)
        for other in self.alive():
            if other.node is not None and self.now >= other.paused_until:
                other.node.leader_lost(replica.id.node, turn)
                self._settle(other)

    # The host's part: carry out what the core asks for, and check it

    def _settle(self, replica: SimulatedReplica) -> None:
        node = replica.node
        assert node is not None
        while (ready := node.ready()) is not None:
            self._carry_out(replica, node, ready)
        node.validate()
        self.invariants.on_leader(node)
        self.invariants.on_progress(node, replica.commit_checked)

    def _carry_out(self, replica: SimulatedReplica, node: RaftNode, ready: Ready) -> None:
        invariants = self.invariants
        for message in ready.messages:
            invariants.on_message(message, replica.disk.durable)
            self.send(message)
        if ready.write is not None:
            invariants.on_write(node, ready.write)
            replica.disk.start(ready.write)
            delay = self.random.randint(1, self.slow_disk)
            self._schedule(delay, Synced(replica, replica.incarnation, ready.write.number))
        if node.commit_index > replica.commit_checked:
            everyone = self.replicas | self._lost
            logs = {name: other.disk.durable for name, other in everyone.items()}
            # What rotted after it was acknowledged was durable then.
            rotten = {name: other.lost_log for name, other in everyone.items() if other.lost_log}
            invariants.on_commit(node, replica.commit_checked, logs, rotten)
            replica.commit_checked = node.commit_index
            self._acknowledge(replica, node)
        replica.apply_up_to(ready.apply_index)
        replica.end_doubt()
        for read in ready.reads:
            invariants.on_read(read, self._reads.pop(read.context))
            self.reads_served += 1
        for target in ready.snapshots_wanted:
            if self.random.random() < 0.8:
                node.send_snapshot(target, replica.make_snapshot())
            else:
                node.snapshot_failed(target)

    def _acknowledge(self, replica: SimulatedReplica, node: RaftNode) -> None:
        """A client is answered when its entry commits under the leader that took it."""
        for index in [index for index in replica.waiting if index <= node.commit_index]:
            term, operation = replica.waiting.pop(index)
            if node.role is Role.LEADER and node.term == term:
                self.acknowledged[operation] = LogIndex(index)

    # Clients

    def propose(self, replica: SimulatedReplica, operation: object) -> None:
        assert replica.node is not None
        span = self.random.choice((1, 1, 2, 3, 7))
        index = replica.node.propose(operation, 10, span)
        if isinstance(index, int):
            replica.waiting[index] = (replica.node.term, operation)
        self._settle(replica)

    def move_log_start(self, replica: SimulatedReplica, operation: int) -> None:
        assert replica.node is not None
        replica.node.propose_own(EntryKind.LOG_START, operation)
        self._settle(replica)

    def read(self, replica: SimulatedReplica, context: object) -> None:
        assert replica.node is not None
        if replica.node.read(context) is None:
            self._reads[context] = len(self.invariants.committed)
        self._settle(replica)

    def settle(self, replica: SimulatedReplica) -> None:
        if replica.node is not None:
            self._settle(replica)
