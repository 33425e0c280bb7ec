"""Proves that throttles hold back anyone who catches up, and nobody whom a producer waits for."""

from tests.sim.machine.garbage import own_garbage_only
from tests.sim.replicas.history import require
from tests.sim.replicas.node import SimulatedNode
from tests.sim.replicas.run import VOTERS, Run, RunReport

SEEDS = range(601, 605)
OPERATIONS = 150
# As long as it may take without any throttle; at one append in a second it takes minutes.
DONE_S_MAX = 20.0


class Throttled(Run):
    """No faults; all that is sent to replicas which catch up is bounded, and one joins."""

    group_counts = (1,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed, OPERATIONS)
        self.fault_chance = self.throttle_chance = 0.0
        self.switch.become_reliable()

    def _make_nodes(self) -> list[SimulatedNode]:
        self.changes_members = True
        return super()._make_nodes()

    def _execute(self) -> RunReport:
        self._throttle(1)
        for node in self.nodes:
            node.start()
        self._want([node.id for node in (*self.nodes[: VOTERS - 1], *self.nodes[VOTERS:])])
        limit = self.world.now + DONE_S_MAX
        while not self.groups[0].is_done:
            self.world.run_for(0.05)
            require(self.world.now < limit, f"producers wait: {self._describe()}")
        self._heal()
        return self._report()


def test_the_lowest_throttle_costs_producers_no_time() -> None:
    for seed in SEEDS:
        with own_garbage_only():
            report = Throttled(seed).execute()
        assert report.acknowledged > 0
