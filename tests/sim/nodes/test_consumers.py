"""Random runs of whole nodes with a group of the new consumer protocol (KIP-848), and what such
runs must notice."""

from functools import partial

import pytest

from tests.sim.mutation import Mutation, hunt
from tests.sim.nodes.consumer_mutations import ALL
from tests.sim.nodes.report import RunReport
from tests.sim.nodes.run import run_seed

SEEDS = 12
SEEDS_MAX = 200
MEMBERS = 3
# About one seed in forty notices it. A change of the code may move it, and then a warning says so.
KNOWN_SEEDS = {"a member is told what is not stored yet": 64}


def run_with_members(seed: int) -> RunReport:
    return run_seed(seed, team_members=MEMBERS)


def test_every_partition_has_one_owner_in_random_runs() -> None:
    reports = [run_with_members(seed) for seed in range(1, SEEDS + 1)]
    assert sum(report.commits_of_team for report in reports) > 5 * SEEDS
    assert sum(report.fenced_of_team for report in reports) > 0
    assert sum(report.handed_over for report in reports) > SEEDS


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: mutation.name)
def test_every_mutation_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name in mutation.targets:
        monkeypatch.setattr(target, name, mutation.replacement)
    hunting = partial(hunt, mutation.name, KNOWN_SEEDS, SEEDS_MAX, run_with_members)
    with pytest.raises(AssertionError):
        hunting()
