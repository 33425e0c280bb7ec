"""A simulated network: drops, duplicates, delays and so reorders, and can be cut one way."""

from random import Random

from penstock.model.ids import BrokerId


class SimulatedNetwork:
    def __init__(self, random: Random) -> None:
        self._random = random
        self.drop_chance = random.choice((0.0, 0.02, 0.1))
        self.duplicate_chance = random.choice((0.0, 0.05))
        self.slow_chance = random.choice((0.0, 0.05, 0.2))
        self.cut: set[tuple[BrokerId, BrokerId]] = set()

    def delays(self, source: BrokerId, target: BrokerId) -> list[int]:
        """When the copies of a message arrive, counted from now; none if it is lost."""
        random = self._random
        if (source, target) in self.cut or random.random() < self.drop_chance:
            return []
        copies = 2 if random.random() < self.duplicate_chance else 1
        return [self._delay() for _ in range(copies)]

    def _delay(self) -> int:
        if self._random.random() < self.slow_chance:
            return self._random.randint(10, 120)
        return self._random.randint(1, 6)

    def partition(self, nodes: list[BrokerId], side: set[BrokerId]) -> None:
        """Cuts one side off from the other, or only what that side says."""
        one_way = self._random.random() < 0.4
        self.cut = {
            (source, target)
            for source in nodes
            for target in nodes
            if (source in side) != (target in side) and (not one_way or source in side)
        }

    def heal(self) -> None:
        self.cut = set()

    def become_reliable(self) -> None:
        self.heal()
        self.drop_chance = self.duplicate_chance = self.slow_chance = 0.0
