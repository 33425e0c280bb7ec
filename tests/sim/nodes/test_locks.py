"""Random runs of whole nodes with users of locks, and what such runs must notice."""

import pytest

from tests.sim.mutation import Mutation, first_is_fast, hunt
from tests.sim.nodes.lock_mutations import ALL
from tests.sim.nodes.locks import run_locks

SEEDS_PER_BLOCK = 8
SEEDS_MAX = 150
# A change of the code may move them, and then a warning says so.
KNOWN_SEEDS = {
    "a controller alone says that a lease is renewed": 18,
}


@pytest.mark.parametrize("block", first_is_fast(2))
def test_nobody_else_holds_a_lock_while_its_lease_lasts_and_tokens_grow_in_random_runs(
    block: int,
) -> None:
    first = 1 + block * SEEDS_PER_BLOCK
    reports = [run_locks(seed) for seed in range(first, first + SEEDS_PER_BLOCK)]
    assert sum(report.grants for report in reports) > 15 * SEEDS_PER_BLOCK
    assert sum(report.repeated for report in reports) > SEEDS_PER_BLOCK
    assert sum(report.renewals for report in reports) > 20 * SEEDS_PER_BLOCK
    assert sum(report.releases for report in reports) > 10 * SEEDS_PER_BLOCK
    assert sum(report.lost for report in reports) > SEEDS_PER_BLOCK
    assert sum(report.fenced for report in reports) > SEEDS_PER_BLOCK


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_locks(3) == run_locks(3)


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: mutation.name)
def test_every_mutation_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name in mutation.targets:
        monkeypatch.setattr(target, name, mutation.replacement)
    with pytest.raises(AssertionError):
        hunt(mutation.name, KNOWN_SEEDS, SEEDS_MAX, run_locks)
