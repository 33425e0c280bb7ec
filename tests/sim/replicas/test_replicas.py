"""Random runs of real replicas hold every invariant and recover; a seed is always the same run."""

import pytest

from tests.sim.mutation import first_is_fast
from tests.sim.replicas.run import run_seed

SEEDS_PER_BLOCK = 25


@pytest.mark.parametrize("block", first_is_fast(4))
def test_every_invariant_holds_in_random_runs(block: int) -> None:
    first = 1 + block * SEEDS_PER_BLOCK
    reports = [run_seed(seed) for seed in range(first, first + SEEDS_PER_BLOCK)]
    assert sum(report.acknowledged for report in reports) > 100 * SEEDS_PER_BLOCK
    assert sum(report.terms for report in reports) > 2 * SEEDS_PER_BLOCK
    assert sum(report.read for report in reports) > 50 * SEEDS_PER_BLOCK


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_seed(7) == run_seed(7)
    assert run_seed(7) != run_seed(8)
