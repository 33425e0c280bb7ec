"""Proves that runs of replicas notice bugs between the core, the disk and the wire."""

import pytest

from tests.sim.mutation import Mutation
from tests.sim.replicas.mutations import ALL
from tests.sim.replicas.run import run_seed

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
