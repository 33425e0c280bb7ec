"""Orders things by what they need, and finds those that need each other."""

from collections.abc import Iterable, Mapping

Needs = Mapping[str, Iterable[str]]


def ordered(needs: Needs) -> list[str]:
    """Each name after those it needs, otherwise in the order given; a cycle is cut somewhere."""
    placed: dict[str, None] = {}
    seen: set[str] = set()
    for name in needs:
        # A stack of its own, so that a long chain does not end Python's.
        waiting = [(name, False)]
        while waiting:
            one, are_needs_placed = waiting.pop()
            if are_needs_placed:
                placed.setdefault(one)
            elif one not in seen and one in needs:
                seen.add(one)
                waiting.append((one, True))
                waiting += [(other, False) for other in reversed(list(needs[one]))]
    return list(placed)


def upstream_of(name: str, needs: Needs) -> list[str]:
    """A name and everything that it needs, directly or not."""
    found: dict[str, None] = {}
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found[one] = None
            waiting += needs.get(one, ())
    return list(found)


def cycles_of(needs: Needs) -> list[list[str]]:
    """For each knot of names that need each other the shortest way round from its first name.

    A way begins and ends with the same name.
    """
    found: list[list[str]] = []
    known: set[str] = set()
    for name in needs:
        way = [] if name in known else _way_round(name, needs)
        if way:
            found.append(way)
            known.update(one for one in upstream_of(name, needs) if name in upstream_of(one, needs))
    return found


def _way_round(name: str, needs: Needs) -> list[str]:
    came_from: dict[str, str] = {}
    waiting = [name]
    for one in waiting:
        for other in needs.get(one, ()):
            if other == name:
                way = [one]
                while way[-1] != name:
                    way.append(came_from[way[-1]])
                return [*reversed(way), name]
            if other not in came_from:
                came_from[other] = one
                waiting.append(other)
    return []
