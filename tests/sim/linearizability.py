"""Whether a history of concurrent operations can be explained by a single copy of the state.

The search of Wing and Gong with Lowe's memory: operations are put into a sequence one by one, each
within its own time, and a set of placed operations that led to a state once is not tried again.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from operator import attrgetter
from typing import NamedTuple

# What an operation returned when nobody knows: it may happen late, or never.
UNKNOWN = "unknown"
NEVER = float("inf")


class Operation(NamedTuple):
    called: float
    # NEVER for one that nobody heard of again: it may take effect at any time after. One that is
    # known to be over took effect before, or not at all.
    returned: float
    call: Hashable
    result: Hashable


# Gives what the call returns in that state, and the state after it.
Model = Callable[[Hashable, Hashable], tuple[Hashable, Hashable]]
# Whether a call that returned this changed nothing, in whatever state it was.
OnlyLooks = Callable[[Hashable, Hashable], bool]


class Verdict(Enum):
    EXPLAINED = "some order explains it"
    UNEXPLAINED = "no order explains it"
    GIVEN_UP = "too wide to be judged"


def is_linearizable(history: Iterable[Operation], model: Model, start: Hashable) -> bool:
    return judge(history, model, start) is Verdict.EXPLAINED


def judge(
    history: Iterable[Operation],
    model: Model,
    start: Hashable,
    only_looks: OnlyLooks = lambda _call, _result: False,
    tries_max: int | None = None,
) -> Verdict:
    """Gives up when this many tries found nothing."""
    operations = sorted(history, key=attrgetter("called"))
    everyone = (1 << len(operations)) - 1
    must = sum(1 << bit for bit, done in enumerate(operations) if done.returned != NEVER)
    looks = {bit for bit, done in enumerate(operations) if only_looks(done.call, done.result)}
    seen: set[tuple[int, Hashable]] = set()
    waiting: list[tuple[int, Hashable]] = [(0, start)]
    while waiting and (tries_max is None or len(seen) < tries_max):
        placed, state = waiting.pop()
        if placed & must == must:
            return Verdict.EXPLAINED
        if (placed, state) in seen:
            continue
        seen.add((placed, state))
        found: list[tuple[int, Hashable]] = []
        for bit in _candidates(operations, everyone & ~placed):
            _, returned, call, expected = operations[bit]
            result, after = model(state, call)
            if bit in looks and expected == result:
                # It fits here and changes nothing, so no sequence needs it later.
                found = [(placed | 1 << bit, state)]
                break
            if expected in (UNKNOWN, result) and (after != state or returned != NEVER):
                found.append((placed | 1 << bit, after))
            # One that is never over need not be placed to have no effect.
            if expected == UNKNOWN and after != state and returned != NEVER:
                found.append((placed | 1 << bit, state))
        waiting += found
    return Verdict.GIVEN_UP if waiting else Verdict.UNEXPLAINED


def _candidates(operations: Sequence[Operation], left: int) -> list[int]:
    """Those that began before any of the others that are left had ended."""
    bits = [bit for bit in range(len(operations)) if left >> bit & 1]
    first_return = min(operations[bit].returned for bit in bits)
    return [bit for bit in bits if operations[bit].called <= first_return]
