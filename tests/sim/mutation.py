"""A bug to inject by replacing methods, and a list of such bugs that tests must notice."""

from collections.abc import Callable
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
