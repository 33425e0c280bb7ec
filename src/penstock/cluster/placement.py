"""Where replicas go: evenly over the brokers, over as many racks as can be, always the same way.

Pure: the same brokers and the same counts give the same places on every node.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from penstock.cluster.brokers import Broker
from penstock.model.ids import BrokerId


class Placement:
    """Hands out places for one partition after the other, counting what it gave."""

    def __init__(
        self,
        brokers: Iterable[Broker],
        *,
        alive: Collection[BrokerId],
        replica_counts: Mapping[BrokerId, int],
        preferred_counts: Mapping[BrokerId, int],
    ) -> None:
        self._brokers = {broker.id: broker for broker in brokers}
        self._order = sorted(self._brokers)
        self._alive = alive
        self._replicas = Counter(dict(replica_counts))
        self._preferred = Counter(dict(preferred_counts))

    def place(self, factor: int) -> tuple[BrokerId, ...]:
        """`factor` brokers, the one that shall lead first."""
        first = min(self._order, key=self._cost_of_leading)
        return self._taken(self._extended([first], factor))

    def extend(self, replicas: Sequence[BrokerId], factor: int) -> tuple[BrokerId, ...]:
        """These brokers and as many more as `factor` asks for, the best to lead first."""
        extended = self._extended(list(replicas), factor)
        for broker in replicas:
            self._replicas[broker] -= 1
        self._preferred[replicas[0]] -= 1
        first = min(extended, key=self._cost_of_leading)
        return self._taken([first, *(broker for broker in extended if broker != first)])

    def _taken(self, chosen: Sequence[BrokerId]) -> tuple[BrokerId, ...]:
        self._preferred[chosen[0]] += 1
        for broker in chosen:
            self._replicas[broker] += 1
        return tuple(chosen)

    def _extended(self, chosen: list[BrokerId], factor: int) -> list[BrokerId]:
        while len(chosen) < factor:
            left = [broker for broker in self._order if broker not in chosen]
            assert left, "the factor was checked against the brokers"
            chosen.append(min(left, key=lambda broker: self._cost_of_holding(broker, chosen)))
        return chosen

    def _cost_of_leading(self, broker: BrokerId) -> tuple[object, ...]:
        is_dead = broker not in self._alive
        return is_dead, self._preferred[broker], self._replicas[broker], broker

    def _cost_of_holding(self, broker: BrokerId, chosen: Sequence[BrokerId]) -> tuple[int, ...]:
        rack = self._rack_of(broker)
        sharing = sum(self._rack_of(other) == rack for other in chosen)
        return sharing, self._replicas[broker], self._distance(chosen[0], broker)

    def _rack_of(self, broker: BrokerId) -> str:
        """A broker without a rack shares its own with nobody."""
        known = self._brokers.get(broker)
        return known.rack if known is not None and known.rack is not None else f"\0{broker}"

    def _distance(self, start: BrokerId, broker: BrokerId) -> int:
        """Round the ring of brokers, so that equal loads do not all end on the lowest number."""
        place = self._order.index(start) if start in self._order else 0
        return (self._order.index(broker) - place) % len(self._order)


def candidates(usable: Sequence[Broker], alive: Collection[BrokerId], count: int) -> list[Broker]:
    """The living ones if there are enough of them, else all: the dead may come back."""
    living = [broker for broker in usable if broker.id in alive]
    return living if len(living) >= count else list(usable)
