"""Random runs of whole nodes: nothing acknowledged is lost, and one order explains the metadata."""

import pytest

from tests.sim.mutation import first_is_fast
from tests.sim.nodes.run import run_seed

SEEDS_PER_BLOCK = 10
# Not every block of seeds has what is rare.
RARE_IN_BLOCK = 0


@pytest.mark.parametrize("block", first_is_fast(3))
def test_every_invariant_holds_in_random_runs(block: int) -> None:
    first = 1 + block * SEEDS_PER_BLOCK
    reports = [run_seed(seed) for seed in range(first, first + SEEDS_PER_BLOCK)]
    assert sum(report.acknowledged for report in reports) > 100 * SEEDS_PER_BLOCK
    assert sum(report.changes_of_topics for report in reports) > 5 * SEEDS_PER_BLOCK
    assert sum(report.commits_of_offsets for report in reports) > 5 * SEEDS_PER_BLOCK
    assert sum(report.deletions_of_offsets for report in reports) > SEEDS_PER_BLOCK
    assert sum(report.commits_of_members for report in reports) > SEEDS_PER_BLOCK
    assert sum(report.fenced for report in reports) > 0
    assert sum(report.read for report in reports) > 100 * SEEDS_PER_BLOCK
    assert sum(report.read_from_followers for report in reports) > 20 * SEEDS_PER_BLOCK
    assert sum(report.fetched_in_sessions for report in reports) > 5 * SEEDS_PER_BLOCK
    assert not any(report.histories_given_up for report in reports)
    if block == RARE_IN_BLOCK:
        assert sum(report.returned for report in reports) > 0, "no static member without rebalance"
        assert sum(report.stops for report in reports) > 0, "no node that stopped cleanly"


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_seed(7) == run_seed(7)
    assert run_seed(7) != run_seed(8)
