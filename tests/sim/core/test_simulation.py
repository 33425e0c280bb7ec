"""Random runs hold every invariant and recover; a seed always gives the same run."""

import pytest

from tests.sim.core.run import run_seed

SEEDS_PER_BLOCK = 40


@pytest.mark.parametrize("block", range(5))
def test_every_invariant_holds_in_random_runs(block: int) -> None:
    first = 1 + block * SEEDS_PER_BLOCK
    reports = [run_seed(seed) for seed in range(first, first + SEEDS_PER_BLOCK)]
    assert sum(report.acknowledged for report in reports) > 20 * SEEDS_PER_BLOCK
    assert sum(report.reads for report in reports) > SEEDS_PER_BLOCK
    assert sum(report.membership_changes for report in reports) > SEEDS_PER_BLOCK // 2


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_seed(7) == run_seed(7)
    assert run_seed(7) != run_seed(8)
