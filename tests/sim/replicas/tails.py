"""Runs in which all nodes lose their power at once, or find rot at the ends of their logs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.model.ids import UNKNOWN_END
from penstock.storage.checkpoint import read_checkpoint
from penstock.storage.layout import base_offsets, segment_path
from tests.sim.machine.drive import Drive
from tests.sim.machine.garbage import own_garbage_only
from tests.sim.replicas.group import Group
from tests.sim.replicas.history import require
from tests.sim.replicas.node import SimulatedNode
from tests.sim.replicas.run import VOTERS, Run, RunReport

LEADER_WITHIN_S = 5.0
# Until a group says that it can't go on, or does: rounds of voting that need everybody.
DECIDED_WITHIN_S = 40.0
BEFORE_S = (0.2, 3.0)
ROUNDS = 3
FAILED_SYNCS_CHANCE = 0.5
FAILED_SYNCS_S = (0.02, 0.5)
# Of the end of a log, where the last batch is in any case.
LAST_BYTES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TailReport:
    seed: int
    steps: int
    acknowledged: int
    power_cuts: int
    failed_syncs: int
    slowest_s: float
    tails_flipped: int
    stopped: int


class Tails(Run):
    """Load without other faults, then the end of all processes at one moment."""

    def __init__(self, seed: int, operations: int) -> None:
        super().__init__(seed, operations)
        self.fault_chance = 0.0
        self.switch.become_reliable()
        self.power_cuts = self.failed_syncs = self.tails_flipped = self.stopped = 0
        self.slowest_s = 0.0

    def _start_all(self) -> None:
        for node in self.nodes:
            self.world.after(self.random.uniform(0.0, 0.2), self._start, node)

    def _await_leaders(self, timeout_s: float) -> float:
        """How long it took until every partition has a leader that knows what is committed."""
        begun = self.world.now
        self._await(
            lambda: all(group.settled_leader() is not None for group in self.groups), timeout_s
        )
        return self.world.now - begun

    def _await(self, condition: Callable[[], bool], timeout_s: float) -> None:
        limit = self.world.now + timeout_s
        while not condition():
            self.world.run_for(0.02)
            require(self.world.now < limit, f"not within {timeout_s} s: {self._describe()}")

    def _work(self) -> None:
        end = self.world.now + self.random.uniform(*BEFORE_S)
        while self.world.now < end and not all(group.is_done for group in self.groups):
            self.world.run_for(0.05)
            self._look()

    def tail_report(self) -> TailReport:
        report = self.execute()
        return TailReport(
            seed=self.seed,
            steps=report.steps,
            acknowledged=report.acknowledged,
            power_cuts=self.power_cuts,
            failed_syncs=self.failed_syncs,
            slowest_s=self.slowest_s,
            tails_flipped=self.tails_flipped,
            stopped=self.stopped,
        )


class PowerCut(Tails):
    """What was synced is there again, and somebody leads soon.

    Before some of the cuts all disks fail to sync, and processes that start after that still see
    what did not reach them.
    """

    def _execute(self) -> RunReport:
        self._start_all()
        self._await_leaders(DECIDED_WITHIN_S)
        for _ in range(ROUNDS):
            self._work()
            if self.random.random() < FAILED_SYNCS_CHANCE:
                self._fail_syncs()
            self._restart_all(lost_power=True)
            self.power_cuts += 1
        self._heal()
        return self._report()

    def _fail_syncs(self) -> None:
        for node in self.nodes:
            node.machine.drive.failing.add("sync")
        self.world.run_for(self.random.uniform(*FAILED_SYNCS_S))
        for node in self.nodes:
            node.machine.drive.failing.clear()
        self._restart_all(lost_power=False)
        self.failed_syncs += 1
        if self.random.random() < 0.5:
            self._work()

    def _restart_all(self, *, lost_power: bool) -> None:
        for node in self.nodes:
            node.crash(lost_power=lost_power)
        self._start_all()
        self.slowest_s = max(self.slowest_s, self._await_leaders(LEADER_WITHIN_S))


class FlippedTails(Tails):
    """One bit at the end of each log of some voters is another when they start again."""

    victims = 1

    def _execute(self) -> RunReport:
        self._start_all()
        self._await_leaders(DECIDED_WITHIN_S)
        self._work()
        for node in self.nodes:
            node.crash(lost_power=self.random.random() < 0.3)
        victims = self.random.sample(self.nodes[:VOTERS], self.victims)
        for victim in victims:
            self.tails_flipped += flip_tails(victim, self)
        self._start_all()
        self._await(lambda: all(map(self._is_decided, self.groups)), DECIDED_WITHIN_S)
        if all(group.settled_leader() is not None for group in self.groups):
            self._heal()
        else:
            self._check_stop(victims)
        return self._report()

    def _is_decided(self, group: Group) -> bool:
        return group.settled_leader() is not None or self._is_stopped(group)

    def _is_stopped(self, group: Group) -> bool:
        """Whether everybody says that it can't go on."""
        replicas = [node.replica(group.partition) for node in self.nodes[:VOTERS]]
        return all(replica is not None and replica._refill.stuck for replica in replicas)

    def _check_stop(self, victims: list[SimulatedNode]) -> None:
        """Only where no whole copy has what was lost elsewhere."""
        for group in self.groups:
            if group.settled_leader() is not None:
                continue
            self.stopped += 1
            for node in self.nodes[:VOTERS]:
                replica = node.replica(group.partition)
                assert replica is not None
                stuck = replica._node.stuck
                require(stuck is not None, f"{node.id} does not know why nobody leads")
                assert stuck is not None
                require(stuck.needed != UNKNOWN_END, "one flipped bit hides where a log ended")
                require(
                    node in victims or replica._node._core.log_end < stuck.needed,
                    f"{node.id} is whole and has all that is missing: {stuck}",
                )


class TwoFlippedTails(FlippedTails):
    victims = 2


def flip_tails(node: SimulatedNode, run: Run) -> int:
    """In every log of the node that was written to since its checkpoint; gives how many."""
    drive, flipped = node.machine.drive, 0
    for directory in {path.parent for path in map(Path, drive.files(".log"))}:
        place = _tail(drive, directory)
        if place is not None:
            path, mark, size = place
            position = run.random.randrange(max(mark, size - LAST_BYTES), size)
            drive.inode(path).data[position] ^= 1 << run.random.randrange(8)
            drive.inode(path).durable = bytearray(drive.inode(path).data)
            drive.is_damaged = True
            flipped += 1
    return flipped


def _tail(drive: Drive, directory: Path) -> tuple[Path, int, int] | None:
    """The last segment with something in it, from where on it is not known to be on disk for
    good, and its size."""
    facts = {each.base_offset: each.size for each in read_checkpoint(drive, directory).segments}
    for base in reversed(base_offsets(drive.names(directory))):
        path = segment_path(directory, base)
        size, mark = drive.size(path), facts.get(base, 0)
        if size > 0:
            return (path, mark, size) if size > mark and base >= max(facts, default=0) else None
    return None


def run_power_cut(seed: int, operations: int = 100) -> TailReport:
    with own_garbage_only():
        return PowerCut(seed, operations).tail_report()


def run_one_flipped(seed: int, operations: int = 100) -> TailReport:
    with own_garbage_only():
        return FlippedTails(seed, operations).tail_report()


def run_two_flipped(seed: int, operations: int = 100) -> TailReport:
    with own_garbage_only():
        return TwoFlippedTails(seed, operations).tail_report()
