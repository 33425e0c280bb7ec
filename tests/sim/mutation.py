"""A bug to inject by replacing methods, and a list of such bugs that tests must notice.

What of it, and of random runs, takes long is only part of `make slow`.
"""

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

Replacement = Callable[..., Any]
# A mutation that one of the first seeds catches need not be known.
FEW_SEEDS = 5


class Mutation(NamedTuple):
    name: str
    targets: tuple[tuple[object, str], ...]
    replacement: Replacement


class Mutations(list[Mutation]):
    def add(self, name: str, *targets: tuple[object, str]) -> Callable[[Replacement], Replacement]:
        """Registers what follows as what somebody could plausibly write in place of `targets`."""

        def register(replacement: Replacement) -> Replacement:
            self.append(Mutation(name, targets, replacement))
            return replacement

        return register


def marked(mutations: Sequence[Mutation], slow: Collection[str]) -> list[Any]:
    """As parameters of a test that is named after them."""
    names = [mutation.name for mutation in mutations]
    assert set(slow) <= set(names), f"no mutations are called {set(slow) - set(names)}"
    return [
        pytest.param(each, id=each.name, marks=[pytest.mark.slow] if each.name in slow else [])
        for each in mutations
    ]


def first_is_fast(blocks: int) -> list[Any]:
    """Blocks of seeds as parameters of a test."""
    return [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, blocks))]


def hunt(
    mutation: str, known: Mapping[str, int], seeds_max: int, run_seed: Callable[[int], object]
) -> None:
    """Runs seeds until one notices the mutation, the one first that is known to.

    A change of the code moves which seed that is, and then the hunt takes up to half a minute: a
    warning says what `known` should say.
    """
    for seed in _seeds(known.get(mutation), seeds_max):
        try:
            run_seed(seed)
        except BaseException:
            if known.get(mutation, seed if seed <= FEW_SEEDS else None) != seed:
                warnings.warn(f"KNOWN_SEEDS: {seed} catches {mutation!r}.", stacklevel=2)
            raise


def _seeds(known: int | None, seeds_max: int) -> Iterator[int]:
    if known is not None:
        yield known
    yield from range(1, seeds_max + 1)
