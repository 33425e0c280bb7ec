"""Proves that what rots on the disk of one node of three costs nothing that was acknowledged."""

import pytest

from tests.sim.machine.garbage import own_garbage_only
from tests.sim.nodes.run import Run

OPERATIONS = 60
# By then there is something of every kind of file.
ROTS_AT_S = 5.0
FEW_SEEDS = range(1, 4)
MANY_SEEDS = range(4, 60)


class RottenDisk(Run):
    """No faults but one: a node stops, and when it starts again each file of a kind is bad."""

    def __init__(self, seed: int, ending: str) -> None:
        super().__init__(seed, OPERATIONS)
        self.fault_chance = 0.0
        self.moves_replicas = False
        self.switch.become_reliable()
        self._ending = ending

    def _let_rot(self) -> None:
        if self.damaged is None and self.world.now > ROTS_AT_S:
            self.damaged = self.random.choice(self.nodes)
            self.damaged.stop(lost_power=False)
        elif self.damaged is not None and not self.damaged.is_up and not self.bits_flipped:
            for path in self.damaged.files(self._ending):
                self.damaged.flip_bit(path)
                self.bits_flipped += 1
            self.damaged.start()


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(FEW_SEEDS, id="few"),
        pytest.param(MANY_SEEDS, id="many", marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize(
    "ending",
    [".log", ".index", ".timeindex", "checkpoint", ".snapshot", "hard_states", ".json"],
)
def test_a_node_with_bad_files_recovers_or_is_repaired_and_nothing_is_lost(
    ending: str, seeds: range
) -> None:
    flipped = 0
    for seed in seeds:
        with own_garbage_only():
            report = RottenDisk(seed, ending).execute()
        assert report.acknowledged > 0
        flipped += report.bits_flipped
    assert flipped > 0
