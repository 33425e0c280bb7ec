"""Proves that a node whose votes may be lost comes back as somebody else in all its groups."""

from penstock.model.ids import ReplicaId
from tests.sim.machine.garbage import own_garbage_only
from tests.sim.nodes.node import PATH, SimulatedNode
from tests.sim.nodes.report import RunReport
from tests.sim.nodes.run import Run
from tests.sim.replicas.history import require
from tests.unit.storage.rot import without_last_votes

SEEDS = range(601, 604)
OPERATIONS = 60


class LostVotes(Run):
    """Under load a node dies, and finds no whole copy of what it promised last."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, OPERATIONS)
        self.fault_chance = 0.0
        self.moves_replicas = self.rots = False
        self.switch.become_reliable()
        self.was: ReplicaId | None = None
        self.loser: SimulatedNode = self.random.choice(self.nodes[:3])

    def _disturb(self) -> None:
        raise AssertionError("nothing else happens")

    def _heal(self) -> None:
        """Comes while producers are still at work, as the first thing after some of it."""
        self.was = self.loser.id
        self.loser.crash(lost_power=self.random.random() < 0.5)
        file = self.loser.machine.drive.inode(PATH / "hard_states")
        file.data[:] = without_last_votes(bytes(file.data))
        file.sync()
        super()._heal()

    def _unfinished(self) -> str:
        """It takes a moment until the new one has caught up and votes."""
        return super()._unfinished() or self._unchanged()

    def _unchanged(self) -> str:
        for key, replicas in self._groups():
            voters = {voter for replica in replicas for voter in replica.membership.voters}
            if self.was in voters:
                return f"{self.was} is still a member of {key}"
            if self.loser.id not in voters and self.loser.replica(key) is not None:
                return f"{self.loser.id} is not a voter of {key}"
        return ""

    def _check(self) -> None:
        super()._check()
        require(self.loser.id != self.was, "a node that lost its votes keeps its id")

    def _is_work_done(self) -> bool:
        acknowledged = sum(len(producer.acknowledged) for producer in self.producers)
        return super()._is_work_done() if self.was else acknowledged > OPERATIONS / 3


def run(seed: int) -> tuple[LostVotes, RunReport]:
    with own_garbage_only():
        lost = LostVotes(seed)
        return lost, lost.execute()


def test_a_node_that_lost_its_votes_is_somebody_else_in_all_its_groups() -> None:
    for seed in SEEDS:
        lost, report = run(seed)
        assert lost.was is not None
        assert report.acknowledged >= OPERATIONS
        # The metadata, both partitions of the topic and those of the groups' offsets.
        assert report.groups >= 3
