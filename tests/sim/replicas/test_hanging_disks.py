"""Proves that a disk that hangs without an error costs a group no more than one that fails."""

from collections.abc import Callable

from tests.sim.machine.garbage import own_garbage_only
from tests.sim.replicas.history import require
from tests.sim.replicas.node import SimulatedNode
from tests.sim.replicas.run import Run, RunReport

SEEDS = range(501, 505)
OPERATIONS = 300
HANGS_S = 30.0
# What a node waits for its disk, an election, and the clients' search for the new leader.
REPLACED_S_MAX = 5.0
STALLS_S = 2.5


class HangingDisk(Run):
    """No faults but the one that `harm` brings about, once there is a leader."""

    group_counts = (1,)
    copies_wanted = (1, 2)
    answers_late = False

    def __init__(self, seed: int) -> None:
        super().__init__(seed, OPERATIONS)
        self.fault_chance = 0.0
        self.changes_members = False
        self.switch.become_reliable()

    def harm(self, leader: SimulatedNode) -> None:
        raise NotImplementedError

    def _execute(self) -> RunReport:
        for node in self.nodes:
            node.start()
        group = self.groups[0]
        self.run_until(lambda: group.settled_leader() is not None, 60.0)
        self.run_until(lambda: self._acknowledged() > 0, 60.0)
        leader = group.settled_leader()
        assert leader is not None
        self.harm(leader)
        self._heal()
        return self._report()

    def hang(self, node: SimulatedNode, seconds: float) -> None:
        node.machine.disk_hangs_until = self.world.now + seconds
        node.machine.disk_answers_late = self.answers_late

    def run_until(self, condition: Callable[[], bool], seconds: float) -> None:
        limit = self.world.now + seconds
        while not condition():
            self.world.run_for(0.05)
            require(self.world.now < limit, f"it does not come: {self._describe()}")


class HangingLeader(HangingDisk):
    def harm(self, leader: SimulatedNode) -> None:
        self.hang(leader, HANGS_S)
        others = [node for node in self.nodes if node is not leader]
        self.run_until(
            lambda: any(node.leading() for node in others) and not leader.leading(), REPLACED_S_MAX
        )
        known = self._acknowledged()
        self.run_until(lambda: self._acknowledged() > known, REPLACED_S_MAX)
        while self.world.now < leader.machine.disk_hangs_until:
            self.world.run_for(0.1)
            require(not leader.leading(), "it leads again although its disk hangs")


class LateLeader(HangingLeader):
    """Its disk does what it is asked for, and says so when another node leads."""

    answers_late = True


class HangingFollower(HangingDisk):
    """The leader dies, so that nobody can lead without the vote of the one that hangs."""

    def harm(self, leader: SimulatedNode) -> None:
        sick = next(node for node in self.nodes if node is not leader)
        self.hang(sick, HANGS_S)
        self.world.run_for(REPLACED_S_MAX)
        require(leader.leading(), "a follower whose disk hangs disturbs the leader")
        leader.crash(lost_power=False)
        while self.world.now < sick.machine.disk_hangs_until:
            self.world.run_for(0.1)
            require(not sick.is_electing(), "it stands for election although its disk hangs")


class StallingLeader(HangingDisk):
    def harm(self, leader: SimulatedNode) -> None:
        history = self.groups[0].history
        terms = history.terms
        self.hang(leader, STALLS_S)
        self.world.run_for(2 * STALLS_S)
        require(leader.leading(), "a leader lost its leadership to a short stall")
        require(history.terms == terms, "a short stall cost an election")


def _run(scenario: type[HangingDisk]) -> None:
    for seed in SEEDS:
        with own_garbage_only():
            report = scenario(seed).execute()
        assert report.acknowledged > 0


def test_a_leader_whose_disk_hangs_is_replaced() -> None:
    _run(HangingLeader)


def test_a_leader_whose_disk_answers_late_is_replaced_and_what_it_wrote_counts_once() -> None:
    _run(LateLeader)


def test_a_replica_whose_disk_hangs_does_not_stand_for_election() -> None:
    _run(HangingFollower)


def test_a_shorter_stall_costs_no_election() -> None:
    _run(StallingLeader)
