"""Proves that neither an empty disk nor a log without its end votes as what was lost would have."""

from collections.abc import Callable

from tests.sim.machine.garbage import own_garbage_only
from tests.sim.replicas.history import require
from tests.sim.replicas.node import SimulatedNode
from tests.sim.replicas.run import Run, RunReport

SEEDS = range(401, 404)
OPERATIONS = 60
# Many times as long as an election takes.
WITHOUT_THE_LEADER_S = 20.0
# Fewer than any batch has.
LAST_BYTES = 20


class LostCopy(Run):
    """Two of three took records: one of them dies, the other one loses something."""

    group_counts = (1,)
    copies_wanted = (1, 2)
    # Recovery trusts what a checkpoint covers, so there shall be much behind it.
    segment_sizes = (100_000,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed, OPERATIONS)
        self.fault_chance = 0.0
        self.unsaved_batches_max = 50_000
        self.switch.become_reliable()

    def lose(self, loser: SimulatedNode) -> None:
        raise NotImplementedError

    def _execute(self) -> RunReport:
        for node in self.nodes:
            node.start()
        group = self.groups[0]
        self._run_until(lambda: group.settled_leader() is not None)
        leader = group.settled_leader()
        assert leader is not None
        loser, behind = (node for node in self.nodes[:3] if node is not leader)
        self.switch.partition([node.node for node in self.nodes], {behind.node}, one_way=False)
        known = self._acknowledged()
        self._run_until(lambda: self._acknowledged() > known + 10)

        leader.crash(lost_power=False)
        self.lose(loser)
        self.switch.heal()
        end = self.world.now + WITHOUT_THE_LEADER_S
        while self.world.now < end:
            self.world.run_for(0.1)
            self._require_nobody_leads(loser, behind)
        self._heal()
        return self._report()

    def _run_until(self, condition: Callable[[], bool]) -> None:
        limit = self.world.now + 60.0
        while not condition():
            self.world.run_for(0.05)
            require(self.world.now < limit, f"it does not come: {self._describe()}")

    def _require_nobody_leads(self, *nodes: SimulatedNode) -> None:
        for node in nodes:
            require(not node.leading(), f"{node.id} leads without what was acknowledged")


class LostDisk(LostCopy):
    def lose(self, loser: SimulatedNode) -> None:
        self._replace_disk(loser)


class LostTail(LostCopy):
    """Of a record that was acknowledged a bit flips, behind the flush mark."""

    def lose(self, loser: SimulatedNode) -> None:
        loser.crash(lost_power=False)
        drive = loser.machine.drive
        last = drive.files(".log")[-1]
        drive.is_damaged = True
        drive.damage(last, drive.size(last) - self.random.randint(1, LAST_BYTES))
        self.bits_flipped += 1
        loser.start()


def test_an_empty_disk_has_no_vote() -> None:
    for seed in SEEDS:
        with own_garbage_only():
            report = LostDisk(seed).execute()
        assert report.acknowledged > OPERATIONS
        assert report.disks_replaced == 1


def test_a_log_without_its_end_makes_no_leader_until_it_is_filled_again() -> None:
    for seed in SEEDS:
        with own_garbage_only():
            report = LostTail(seed).execute()
        assert report.acknowledged > OPERATIONS
        assert report.bits_flipped == 1
