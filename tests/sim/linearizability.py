"""Whether a history of concurrent operations can be explained by a single copy of the state.

The search of Wing and Gong with Lowe's memory: operations are put into a sequence one by one, each
within its own time, and a set of placed operations that led to a state once is not tried again.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
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


def is_linearizable(history: Iterable[Operation], model: Model, start: Hashable) -> bool:
    operations = sorted(history, key=attrgetter("called"))
    everyone = (1 << len(operations)) - 1
    must = sum(1 << bit for bit, done in enumerate(operations) if done.returned != NEVER)
    seen: set[tuple[int, Hashable]] = set()
    waiting: list[tuple[int, Hashable]] = [(0, start)]
    while waiting:
        placed, state = waiting.pop()
        if placed & must == must:
            return True
        if (placed, state) in seen:
            continue
        seen.add((placed, state))
        for bit in _candidates(operations, everyone & ~placed):
            result, after = model(state, operations[bit].call)
            expected = operations[bit].result
            if expected in (UNKNOWN, result):
                waiting.append((placed | 1 << bit, after))
            if expected == UNKNOWN and after != state:
                waiting.append((placed | 1 << bit, state))
    return False


def _candidates(operations: Sequence[Operation], left: int) -> list[int]:
    """Those that began before any of the others that are left had ended."""
    bits = [bit for bit in range(len(operations)) if left >> bit & 1]
    first_return = min(operations[bit].returned for bit in bits)
    return [bit for bit in bits if operations[bit].called <= first_return]
