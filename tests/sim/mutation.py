"""A bug to inject by replacing methods, and a list of such bugs that tests must notice."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Replacement = Callable[..., Any]


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


def seeds(known: int | None, seeds_max: int) -> Iterator[int]:
    """All of them, the one first that is known to catch a mutation which others hardly do."""
    if known is not None:
        yield known
    yield from range(1, seeds_max + 1)
