"""One run: clients, faults and changes of membership at random; then healing, and equality."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random

from penstock.model.errors import Refused
from penstock.model.ids import BrokerId, ReplicaId
from penstock.model.topic_config import EVERYBODY, TopicConfig
from penstock.raft.settings import RaftSettings
from penstock.replication.replica import Replica
from penstock.storage import checkpointer
from tests.sim.machine.bugs import bugs_fail
from tests.sim.machine.disk_faults import fail_reads, fail_syncs, fill_disk, hang_disk
from tests.sim.machine.garbage import own_garbage_only
from tests.sim.machine.process import Machine
from tests.sim.machine.wire import Switch
from tests.sim.machine.world import World
from tests.sim.replicas.group import Group
from tests.sim.replicas.history import History, require
from tests.sim.replicas.node import SimulatedNode, endpoint_of

HEALING_S_MAX = 120.0
# Where nothing was acknowledged for so long, faults become rare, and then all is left in peace
# until something is: more of them would show nothing new, and take most of a run's time. If that
# does not help, something has to be repaired first, as at the end.
SLOW_S_MAX = 0.5
STUCK_S_MAX = 1.5
HOPELESS_S_MIN = 5.0
# How often power fails during elections while nothing is acknowledged: each failure leads to the
# next election, and some runs did nothing else.
STRIKES_MAX = 3
# How long faults last at most.
DISTURBED_S_MAX = 40.0
VOTERS = 3
SPARES = 1
PRODUCERS = 3
# Of throttles, in bytes per second.
RATES = (None, 1, 500, 20_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    seed: int
    steps: int
    seconds: float
    terms: int
    committed: int
    acknowledged: int
    read: int
    confirmed: int
    changes: int
    disks_replaced: int
    bits_flipped: int
    writes_misdirected: int


class Run:
    # How many partitions a run may have, their `min.insync.replicas` and `segment.bytes`.
    group_counts: Sequence[int] = (1, 1, 1, 1, 2, 3)
    copies_wanted: Sequence[int] = (1, 2, 2, 3)
    segment_sizes: Sequence[int] = (300, 1000, 100_000)

    def __init__(self, seed: int, operations: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.world = World(self.random)
        self.switch = Switch(self.world)
        self.fault_chance = self.random.choice((0.05, 0.2, 0.4))
        self.changes_members = self.random.random() < 0.5
        self.compacts = self.random.random() < 0.3
        self.copies_min = self.random.choice(self.copies_wanted)
        # Of its own, so that it changes nothing else.
        self.throttles = Random(f"throttles of {seed}")
        self.throttle_chance = self.throttles.choice((0.0, 0.0, 0.05))
        self.unsaved_batches_max = self.random.choice((5, 20, 50_000))
        self.is_disturbed = True
        # How much was acknowledged, and when that was less for the last time.
        self._progress = 0, 0.0
        # How often power failed during an election since.
        self._strikes = 0
        self.changes = 0
        self.disks_replaced = 0
        self.bits_flipped = 0
        self.writes_misdirected = 0
        # Whose disk holds a bit that nobody wrote.
        self.damaged: SimulatedNode | None = None
        # Whose disk has put a write in a wrong place.
        self.astray: SimulatedNode | None = None
        self.groups = self._make_groups()
        self.nodes = self._make_nodes()
        self._make_producers(operations)

    def _make_groups(self) -> list[Group]:
        """Few runs have several: what they share (disk, votes, connections) is seldom to blame."""
        return [
            Group(
                self.world,
                number,
                History(compacts=self.compacts),
                copies_min=self.copies_min,
                compacts=self.compacts,
            )
            for number in range(self.random.choice(self.group_counts))
        ]

    def _make_producers(self, operations: int) -> None:
        """As many operations for all partitions together as for one."""
        # Long values, so that a write takes many sectors, where segments have room for them.
        padding = self.random.choice((0, 0, 1500)) if self.segment_bytes > 1000 else 0
        for number in range(1, PRODUCERS + 1):
            group = self.groups[number % len(self.groups)]
            group.add_producer(number, operations // PRODUCERS, padding)

    def _make_nodes(self) -> list[SimulatedNode]:
        spares = SPARES if self.changes_members else 0
        numbers = [BrokerId(number) for number in range(1, VOTERS + spares + 1)]
        founders: list[ReplicaId] = []
        self.segment_bytes = self.random.choice(self.segment_sizes)
        config = TopicConfig(
            segment_bytes=self.segment_bytes,
            index_interval_bytes=100,
            cleanup_compact=self.compacts,
            cleanup_delete=not self.compacts,
            min_cleanable_dirty_ratio=0.1,
            min_insync_replicas=self.copies_min,
            throttled_leaders=EVERYBODY,
            throttled_followers=EVERYBODY,
        )
        raft = RaftSettings(
            heartbeats_by_host=True,
            election_ticks=self.random.choice((3, 3, 5, 10)),
            append_bytes_max=self.random.choice((300, 1 << 20)),
            appends_in_flight_max=self.random.choice((1, 64)),
            snapshot_wait_rounds_max=2,
        )
        nodes = [
            SimulatedNode(
                Machine(self.world, self.switch, number),
                founders=founders,
                config=config,
                raft=raft,
                histories=[group.history for group in self.groups],
            )
            for number in numbers
        ]
        founders += [node.id for node in nodes[:VOTERS]]
        for node in nodes:
            node.wanted = list(founders)
            node.on_election = self._strike
            node.look_everywhere = self._look_closely
            node.peers = {number: endpoint_of(number) for number in numbers}
        for group in self.groups:
            group.nodes = nodes
        return nodes

    # The run

    def execute(self) -> RunReport:
        try:
            with bugs_fail(self.world), saves_often(self.unsaved_batches_max):
                return self._execute()
        except Exception as error:
            error.add_note(self._last_events())
            raise
        finally:
            for node in self.nodes:
                node.end()

    def _execute(self) -> RunReport:
        for node in self.nodes:
            node.start()
        while not all(group.is_done for group in self.groups):
            self.world.run_for(self.random.uniform(0.02, 0.2))
            self._look()
            idle_s = self._idle_s()
            if idle_s > STUCK_S_MAX:
                self._leave_in_peace()
            elif self.random.random() < self.fault_chance / (1 if idle_s < SLOW_S_MAX else 4):
                self._disturb()
            if self.changes_members and self.random.random() < 0.03:
                self._change_members()
            if self.random.random() < 0.25:
                self._upkeep()
            if self.throttles.random() < self.throttle_chance:
                self._throttle(self.throttles.choice(RATES))
            if self.world.now > DISTURBED_S_MAX or idle_s > HOPELESS_S_MIN:
                break
        self._heal()
        return self._report()

    def _look(self) -> None:
        for group in self.groups:
            group.consumer.look()
            if self.random.random() < 0.2:
                group.reader.look()

    def _look_closely(self) -> None:
        for node in self.nodes:
            node.observe(closely=True)

    def _acknowledged(self) -> int:
        return sum(group.acknowledged for group in self.groups)

    def _idle_s(self) -> float:
        """For how long nothing was acknowledged."""
        acknowledged = self._acknowledged()
        if acknowledged != self._progress[0]:
            self._progress = acknowledged, self.world.now
            self._strikes = 0
        return self.world.now - self._progress[1]

    def _leave_in_peace(self) -> None:
        self.switch.heal()
        self._restart_all()
        for node in self._running():
            node.set_clock_right()
            node.machine.disk_hangs_until = 0.0

    def _running(self) -> list[SimulatedNode]:
        return [node for node in self.nodes if node.is_up]

    def _victim(self) -> SimulatedNode | None:
        """Leaders are hit more often than others: there is more to lose."""
        running = self._running()
        leading = [node for node in running if node.leading()]
        if not running:
            return None
        return self.random.choice(leading if leading and self.random.random() < 0.5 else running)

    def _disturb(self) -> None:
        victim = self._victim()
        if victim is None:
            self._restart_all()
            return
        weights, faults = zip(*self._faults(), strict=True)
        self.random.choices(faults, weights)[0](victim)

    def _faults(self) -> list[tuple[int, Callable[[SimulatedNode], None]]]:
        """What may happen to a node, or to all of them, and how often compared with the others."""
        return [
            (4, lambda _: self._restart_all()),
            (1, lambda _: self.switch.heal()),
            (1, lambda _: self.switch.break_some()),
            (2, self._cut),
            (2, self._crash),
            (2, self._crash_and_start),
            (1, self._crash_in_a_write),
            (1, self._pause),
            (1, self._transfer),
            (1, self._jump_clock),
            (1, lambda victim: fill_disk(victim.machine)),
            (1, lambda victim: hang_disk(victim.machine)),
            (1, fail_syncs),
            (1, fail_reads),
            (2, self._lose_a_disk),
            (2, self._rot),
            (1, self._misdirect),
        ]

    def _crash_in_a_write(self, victim: SimulatedNode) -> None:
        steps, lost = self.random.randint(0, 8), self.random.random() < 0.5
        victim.machine.crash_in_a_write(steps, lost_power=lost)

    def _crash(self, victim: SimulatedNode) -> None:
        victim.crash(lost_power=self.random.random() < 0.4)

    def _strike(self, candidate: SimulatedNode) -> None:
        """Power fails at somebody while a vote is under way: what it promised must survive."""
        if not self.is_disturbed or self._strikes == STRIKES_MAX:
            return
        others = [node for node in self._running() if node is not candidate]
        if others and self.random.random() < self.fault_chance:
            self._strikes += 1
            victim = self.random.choice(others)
            delay = self.random.uniform(0.0, 0.02)
            self.world.after(delay, lambda: self._crash_and_start(victim))

    def _crash_and_start(self, victim: SimulatedNode) -> None:
        if not self.is_disturbed or not victim.is_up:
            return
        if self.random.random() < 0.4:
            # In the middle of what it writes next, and then once more without power: what the next
            # process found, and built on, must last.
            steps = self.random.randint(0, 6)
            victim.machine.crash_in_a_write(steps, lost_power=self.random.random() < 0.3)
            self.world.after(self.random.uniform(0.05, 0.2), self._start, victim)
            self.world.after(self.random.uniform(0.2, 0.5), self._cut_power, victim)
            return
        victim.crash(lost_power=self.random.random() < 0.7)
        self.world.after(self.random.uniform(0.0, 0.1), self._start, victim)

    def _cut_power(self, victim: SimulatedNode) -> None:
        if self.is_disturbed and victim.is_up:
            victim.crash(lost_power=True)
            self.world.after(self.random.uniform(0.0, 0.1), self._start, victim)

    def _start(self, node: SimulatedNode) -> None:
        if node is self.astray and not node.is_up:
            self._replace_disk(node)
        elif not node.is_up:
            node.start()

    def _restart_all(self) -> None:
        for node in self.nodes:
            self._start(node)

    def _cut(self, victim: SimulatedNode) -> None:
        numbers = [node.node for node in self.nodes]
        side = set(self.random.sample(numbers, self.random.randint(1, 2)))
        if self.random.random() < 0.5:
            side = {victim.node}
        self.switch.partition(numbers, side, one_way=self.random.random() < 0.4)

    def _pause(self, victim: SimulatedNode) -> None:
        process = victim.machine.process
        assert process is not None
        process.loop.pause(self.random.uniform(0.2, 4.0))

    def _transfer(self, victim: SimulatedNode) -> None:
        target = self.random.choice(self.nodes).node
        for node in self.nodes:
            for partition in node.leading():
                node.in_loop(partial(_try_transfer, node.replicas[partition], target))

    def _jump_clock(self, victim: SimulatedNode) -> None:
        process = victim.machine.process
        assert process is not None
        process.clock.skew_ms += self.random.choice((-3_600_000, -500, 500, 3_600_000))

    def _lose_a_disk(self, victim: SimulatedNode) -> None:
        """Raft survives the loss of one of three disks, not of two: one at a time, replaced, and
        only after the group has recovered from the one before."""
        if not self.changes_members or not self._may_lose_a_disk():
            return
        self._replace_disk(victim)

    def _replace_disk(self, victim: SimulatedNode) -> None:
        wanted = self._wanted_numbers()
        victim.crash(lost_power=False)
        victim.replace_disk()
        self.disks_replaced += 1
        self._want([node.id for node in self.nodes if node.node in wanted])
        if victim is self.damaged:
            self.damaged = self.astray = None
        victim.start()

    def _rot(self, victim: SimulatedNode) -> None:
        """A bit flips, in any file. The disk is as good as lost, once somebody notices."""
        drive = victim.machine.drive
        files = [path for path in drive.files() if drive.size(path)]
        if files and self.changes_members and self._may_lose_a_disk():
            drive.flip_bit(self.random.choice(files), self.random)
            self.bits_flipped += 1
            self.damaged = victim

    def _misdirect(self, victim: SimulatedNode) -> None:
        """A write goes astray. Nobody can tell that from a write that was never asked for, so the
        disk is replaced before a process relies on it again."""
        if self.changes_members and self._may_lose_a_disk():
            drive = victim.machine.drive
            drive.misdirects, drive.is_damaged = 1, True
            self.damaged = self.astray = victim
            self.writes_misdirected += 1

    def _may_lose_a_disk(self) -> bool:
        if self.damaged is not None or len(self._wanted_numbers()) < VOTERS:
            return False
        return all(self._may_lose_a_copy(group.partition) for group in self.groups)

    def _may_lose_a_copy(self, partition: int) -> bool:
        known = {node.id for node in self.nodes}
        replicas = [node.replica(partition) for node in self.nodes if node.is_up]
        running = [
            replica
            for replica in replicas
            if replica is not None and replica.stopped_because is None
        ]
        if len(running) < len(self.nodes):
            return False
        newest = max(running, key=lambda replica: (replica.term, replica.is_leader))
        return newest.is_reconciled and all(
            len(replica.membership.voters) >= VOTERS and replica.membership.members <= known
            for replica in running
        )

    def _wanted_numbers(self) -> set[BrokerId]:
        return {replica.node for replica in self.nodes[0].wanted}

    def _change_members(self) -> None:
        if self.damaged is not None:
            # A smaller group could not do without the disk that nobody can trust.
            return
        size = self.random.choice((VOTERS, VOTERS, VOTERS, VOTERS - 1))
        chosen = self.random.sample(self.nodes, size)
        self.changes += 1
        self._want([node.id for node in chosen])

    def _want(self, voters: list[ReplicaId]) -> None:
        for node in self.nodes:
            node.want(voters)

    def _throttle(self, rate: int | None) -> None:
        for node in self.nodes:
            node.throttle(rate)

    def _upkeep(self) -> None:
        for node in self.nodes:
            if node.is_up and self.random.random() < 0.5:
                node.upkeep()
        if not self.compacts and self.random.random() < 0.3:
            for node in self.nodes:
                for partition in node.leading():
                    node.delete_records(partition, self.random.random())

    # Healing

    def _heal(self) -> None:
        """With everyone back and the network whole, the group must work and become equal."""
        self.is_disturbed = False
        self._throttle(None)
        self.switch.become_reliable()
        for node in self.nodes:
            node.machine.drive.empty_out()
            node.machine.drive.failing.discard("read")
            node.machine.drive.steps_left = None
            node.set_clock_right()
        if self.damaged is not None:
            self._replace_disk(self.damaged)
        limit = self.world.now + HEALING_S_MAX
        while not all(group.is_equal() for group in self.groups):
            self._repair()
            self.world.run_for(0.2)
            if self.world.now > limit:
                require(False, f"the group did not recover: {self._describe()}")
        self._look_closely()
        for group in self.groups:
            group.check()

    def _repair(self) -> None:
        """What an operator would do: start what is down, and give up a disk that is damaged."""
        for node in self.nodes:
            if node.is_up and node.is_stopped:
                node.crash(lost_power=False)
            if not node.is_up:
                self._start(node)
            elif self.random.random() < 0.2:
                node.upkeep()

    def _last_events(self) -> str:
        return "\n".join(
            line for node in self.nodes for line in (f"Node {node.node}:", *node.events.lines())
        )

    def _describe(self) -> str:
        lines = [f"producers done: {[group.is_done for group in self.groups]}"]
        lines += [node.describe() for node in self.nodes]
        return "\n  ".join(lines)

    def _report(self) -> RunReport:
        return RunReport(
            seed=self.seed,
            steps=self.world.steps,
            seconds=round(self.world.now, 3),
            terms=sum(group.history.terms for group in self.groups),
            committed=sum(group.history.committed_index for group in self.groups),
            acknowledged=self._acknowledged(),
            read=sum(group.consumer.records for group in self.groups),
            confirmed=sum(group.reader.confirmed for group in self.groups),
            changes=self.changes,
            disks_replaced=self.disks_replaced,
            bits_flipped=self.bits_flipped,
            writes_misdirected=self.writes_misdirected,
        )


def _try_transfer(replica: Replica, target: BrokerId) -> None:
    try:
        replica.transfer(target)
    except Refused:
        return


@contextmanager
def saves_often(unsaved_batches_max: int) -> Iterator[None]:
    """Checkpoints come after this many batches."""
    usual = checkpointer.UNSAVED_BATCHES_MAX
    checkpointer.UNSAVED_BATCHES_MAX = unsaved_batches_max
    try:
        yield
    finally:
        checkpointer.UNSAVED_BATCHES_MAX = usual


def run_seed(seed: int, operations: int = 100) -> RunReport:
    """The same seed gives the same run, and so the same report or the same failure."""
    with own_garbage_only():
        return Run(seed, operations).execute()
