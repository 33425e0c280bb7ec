"""The judge of histories: what a single copy explains passes, everything else does not."""

from collections.abc import Hashable
from random import Random

import pytest

from tests.sim.linearizability import NEVER, UNKNOWN, Operation, Verdict, is_linearizable, judge


def register(state: Hashable, call: Hashable) -> tuple[Hashable, Hashable]:
    assert isinstance(call, tuple)
    return (state, state) if call[0] == "read" else ("ok", call[1])


def write(called: float, returned: float, value: int, result: str = "ok") -> Operation:
    return Operation(called, returned, ("write", value), result)


def read(called: float, returned: float, value: int) -> Operation:
    return Operation(called, returned, ("read",), value)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([write(0, 1, 5), read(2, 3, 5)], True),
        ([write(0, 1, 5), read(2, 3, 0)], False),
        ([write(0, 9, 5), read(1, 2, 0), read(3, 4, 5)], True),
        ([write(0, 9, 5), read(1, 2, 5), read(3, 4, 0)], False),
        ([write(0, 3, 1), write(0, 3, 2), read(4, 5, 1)], True),
        ([write(0, NEVER, 5, UNKNOWN), read(2, 3, 0), read(4, 5, 5)], True),
        ([write(0, NEVER, 5, UNKNOWN), read(2, 3, 0)], True),
        ([write(0, NEVER, 5, UNKNOWN), read(2, 3, 5), read(4, 5, 0)], False),
        ([write(0, 1, 5, UNKNOWN), read(2, 3, 0)], True),
        ([write(0, 1, 5, UNKNOWN), read(2, 3, 5)], True),
        ([write(0, 1, 5, UNKNOWN), read(2, 3, 0), read(4, 5, 5)], False),
        ([], True),
    ],
)
def test_small_histories_are_judged_rightly(history: list[Operation], expected: bool) -> None:
    assert is_linearizable(history, register, 0) is expected


def test_what_a_single_copy_did_is_always_explained() -> None:
    for seed in range(50):
        random = Random(seed)
        state, moment, history = 0, 0.0, []
        for number in range(1, 30):
            moment += random.random()
            early, late = moment - random.random() * 3, moment + random.random() * 3
            if random.random() < 0.5:
                state = number
                history.append(write(early, late, number))
            else:
                history.append(read(early, late, state))
        assert is_linearizable(history, register, 0)


def test_a_search_that_is_given_up_is_not_taken_for_an_explanation() -> None:
    wide = [write(0, 9, number) for number in range(1, 9)]
    impossible = [*wide, read(10, 11, 0)]
    assert judge(impossible, register, 0, tries_max=10) is Verdict.GIVEN_UP
    assert judge(impossible, register, 0) is Verdict.UNEXPLAINED
    assert judge([*wide, read(10, 11, 1)], register, 0, tries_max=10) is Verdict.EXPLAINED
