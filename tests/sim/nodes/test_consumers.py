"""Random runs of whole nodes with a group of the new consumer protocol (KIP-848), and what such
runs must notice."""

from collections.abc import Callable
from functools import partial

import pytest

from tests.sim.mutation import Mutation, first_is_fast, hunt
from tests.sim.nodes import test_cut_off_coordinators
from tests.sim.nodes.consumer_mutations import ALL
from tests.sim.nodes.report import RunReport
from tests.sim.nodes.run import run_seed

SEEDS_PER_BLOCK = 6
SEEDS_MAX = 200
MEMBERS = 3
# What about one run in sixty notices.
DIRECTED: dict[str, Callable[[], None]] = {
    "a member is told what is not stored yet": (
        test_cut_off_coordinators.test_a_coordinator_that_was_cut_off_takes_no_member
    )
}


def run_with_members(seed: int) -> RunReport:
    return run_seed(seed, team_members=MEMBERS)


@pytest.mark.parametrize("block", first_is_fast(2))
def test_every_partition_has_one_owner_in_random_runs(block: int) -> None:
    first = 1 + block * SEEDS_PER_BLOCK
    reports = [run_with_members(seed) for seed in range(first, first + SEEDS_PER_BLOCK)]
    assert sum(report.commits_of_team for report in reports) > 5 * SEEDS_PER_BLOCK
    assert sum(report.fenced_of_team for report in reports) > 0
    assert sum(report.handed_over for report in reports) > SEEDS_PER_BLOCK


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: mutation.name)
def test_every_mutation_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name in mutation.targets:
        monkeypatch.setattr(target, name, mutation.replacement)
    hunting = partial(hunt, mutation.name, {}, SEEDS_MAX, run_with_members)
    test = DIRECTED.get(mutation.name, hunting)
    with pytest.raises(AssertionError):
        test()
