"""Proves that a share partition agrees with a naive one, whatever happens in whatever order."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.queues.simulation import check_run, check_seed

SEEDS = 200


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_it_agrees_with_a_naive_one_over_many_seeds(first: int) -> None:
    for seed in range(first, first + 50):
        check_seed(seed)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_it_agrees_with_a_naive_one_in_runs_that_can_be_shrunk(choices: Random) -> None:
    check_run(choices, steps=20)
