"""Judges how long something takes, on machines that stall now and then."""

import time
from collections.abc import Callable

ATTEMPTS = 3


def seconds_of(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def check_quick(measure: Callable[[], float], at_most_s: float) -> None:
    """A machine stalls once in a while; who waits where nobody should does so every time."""
    taken_s: list[float] = []
    for _ in range(ATTEMPTS):
        taken_s.append(measure())
        if taken_s[-1] < at_most_s:
            return
    shown = ", ".join(f"{one:.1f}" for one in taken_s)
    raise AssertionError(f"took {shown} s, never less than {at_most_s:g}")
