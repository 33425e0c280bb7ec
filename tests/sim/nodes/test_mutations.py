"""Proves that runs of whole nodes notice bugs in the metadata, in groups and in moves."""

import pytest

from tests.sim.mutation import Mutation
from tests.sim.nodes.mutations import ALL
from tests.sim.nodes.run import run_seed

SEEDS_MAX = 150


def _simulate() -> None:
    for seed in range(1, SEEDS_MAX + 1):
        run_seed(seed)


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: mutation.name)
def test_every_mutation_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name in mutation.targets:
        monkeypatch.setattr(target, name, mutation.replacement)
    with pytest.raises(AssertionError):
        _simulate()
