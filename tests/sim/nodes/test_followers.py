"""Proves that a consumer that sticks to a follower comes to no harm, whatever state that is in."""

from collections.abc import Callable
from dataclasses import replace

from penstock.model.ids import BrokerId
from penstock.raft.settings import RaftSettings
from tests.sim.machine.garbage import own_garbage_only
from tests.sim.nodes.node import SimulatedNode
from tests.sim.nodes.report import RunReport
from tests.sim.nodes.run import Run

OPERATIONS = 100
SEEDS = range(5, 9)
# Shorter than an election time-out: one that is cut off for so long takes itself for a follower.
CUT_OFF_S = 0.8
# By then there is something to lose.
ROTS_AT_S = 3.0
REFILL_S_MAX = 5.0
STEP_S = 0.005


class Followed(Run):
    """No faults but those that a follower meets while consumers read from it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, OPERATIONS)
        self.fault_chance, self.moves_replicas = 0.0, False
        self.switch.become_reliable()
        self.met = 0

    def _let_rot(self) -> None:
        victims = [node for node in self.nodes if node.is_registered and self._follows(node)]
        if victims and self.damaged is None:
            self._harm(self.random.choice(victims))

    def _follows(self, node: SimulatedNode) -> bool:
        found = (node.replica(key) for key in self.producers_of)
        return any(replica is not None and not replica.is_leader for replica in found)

    def _harm(self, follower: SimulatedNode) -> None:
        raise NotImplementedError

    def _read_until(self, is_over: Callable[[], bool], seconds_max: float) -> None:
        end = self.world.now + seconds_max
        while self.world.now < end and not is_over():
            self.world.run_for(STEP_S)
            self._read()


class Lagging(Followed):
    """A follower is cut off: those who wrote and read at the leader come to it with what it has
    never heard of."""

    def _harm(self, follower: SimulatedNode) -> None:
        self.switch.partition([node.node for node in self.nodes], {follower.node}, one_way=False)
        self._read_until(lambda: False, CUT_OFF_S)
        for reader in self.readers:
            reader.prefer(follower.node)
            self.met += 1
        self._read_until(lambda: False, 0.1)
        self.switch.heal()
        self.world.run_for(1.0)


class Refilled(Followed):
    """A follower lost the tails of its logs: until they are filled again it serves nobody. They are
    sent so little at a time that clients come meanwhile."""

    def _make_node(self, number: BrokerId, raft: RaftSettings, **how: object) -> SimulatedNode:
        slow = replace(raft, append_bytes_max=1, appends_in_flight_max=1)
        return super()._make_node(number, slow, **how)

    def _harm(self, follower: SimulatedNode) -> None:
        if self.world.now < ROTS_AT_S:
            return
        self.damaged = follower
        follower.crash(lost_power=False)
        for path in follower.files(".log"):
            follower.flip_bit(path)
        follower.repair()
        follower.start()
        for reader in self.readers:
            reader.start_over()
        self._read_until(lambda: self._is_whole(follower), REFILL_S_MAX)

    def _is_whole(self, follower: SimulatedNode) -> bool:
        replicas = [follower.replica(key) for key in self.producers_of]
        for replica in replicas:
            if replica is not None and replica._has_log and replica._refill.is_due:
                self.met += replica.leader is not None and follower.is_responsive
                for reader in self.readers:
                    reader.prefer(follower.node)
        return follower.is_registered and not any(
            replica is not None and replica._has_log and replica._refill.is_due
            for replica in replicas
        )


def _met(make: Callable[[int], Followed]) -> list[RunReport]:
    runs = [make(seed) for seed in SEEDS]
    with own_garbage_only():
        reports = [run.execute() for run in runs]
    assert sum(run.met for run in runs) > 0
    return reports


def test_a_follower_that_lags_sends_consumers_back_to_the_leader() -> None:
    assert all(report.read_from_followers > 0 for report in _met(Lagging))


def test_a_follower_that_is_filled_again_serves_nobody() -> None:
    assert all(report.read_from_followers > 0 for report in _met(Refilled))
