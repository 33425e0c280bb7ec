"""Proves that runs of whole nodes notice bugs in the metadata, in groups and in moves."""

import pytest

from tests.sim.mutation import Mutation, seeds
from tests.sim.nodes.mutations import ALL
from tests.sim.nodes.run import run_seed

SEEDS_MAX = 150
# Saves a minute; a change of the code may move them, which costs only time.
KNOWN_SEEDS = {
    "a hosted state answers before its records are committed": 5,
}


def _simulate(mutation: str) -> None:
    for seed in seeds(KNOWN_SEEDS.get(mutation), SEEDS_MAX):
        run_seed(seed)


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: mutation.name)
def test_every_mutation_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name in mutation.targets:
        monkeypatch.setattr(target, name, mutation.replacement)
    with pytest.raises(AssertionError):
        _simulate(mutation.name)
