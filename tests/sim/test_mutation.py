"""Proves that a list of known seeds that has become old is noticed, since it costs only time."""

import pytest

from tests.sim.mutation import FEW_SEEDS, hunt

SEEDS_MAX = 50
CATCHES = FEW_SEEDS + 5


def run_seed(seed: int) -> None:
    assert seed != CATCHES


@pytest.mark.parametrize("known", [{}, {"bug": CATCHES + 1}])
def test_a_seed_that_should_be_known_is_named(known: dict[str, int]) -> None:
    with (
        pytest.warns(UserWarning, match=rf"^KNOWN_SEEDS: {CATCHES} catches 'bug'\.$"),
        pytest.raises(AssertionError),
    ):
        hunt("bug", known, SEEDS_MAX, run_seed)


@pytest.mark.filterwarnings("error")
def test_a_seed_that_is_known_is_run_first_and_needs_no_word() -> None:
    ran: list[int] = []

    def note(seed: int) -> None:
        ran.append(seed)
        run_seed(seed)

    with pytest.raises(AssertionError):
        hunt("bug", {"bug": CATCHES}, SEEDS_MAX, note)
    assert ran == [CATCHES]


@pytest.mark.filterwarnings("error")
def test_one_of_the_first_seeds_need_not_be_known() -> None:
    def fail(seed: int) -> None:
        raise AssertionError

    with pytest.raises(AssertionError):
        hunt("bug", {}, SEEDS_MAX, fail)


def test_a_mutation_that_no_seed_catches_ends_the_hunt() -> None:
    hunt("bug", {}, CATCHES - 1, run_seed)
