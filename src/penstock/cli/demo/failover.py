"""One node dies in the middle: who, how long the writes paused, and when it was back.

    READY --kill--> DOWN --each of its partitions takes a write again--> MOVED
          --restart--> RETURNING --ready, and every copy is up to date--> BACK

The pause of a partition is the longest time without an acknowledgement from the kill until the
first acknowledgement of a reading that was sent after it: only a new leader can give that one.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from penstock.cli.demo.events import Acknowledged


class Phase(Enum):
    READY = auto()
    DOWN = auto()
    MOVED = auto()
    RETURNING = auto()
    BACK = auto()


@dataclass(slots=True)
class Failover:
    """Times ending in `_s` are the demonstration's monotonic clock unless they are durations."""

    phase: Phase = Phase.READY
    node: int = 0
    # The partitions that the node led.
    led: frozenset[int] = frozenset()
    pause_s: float = 0.0
    killed_s: float = 0.0
    moved_s: float = 0.0
    restarted_s: float = 0.0
    back_s: float = 0.0
    _killed_us: int = 0
    _last_s: dict[int, float] = field(default_factory=dict)
    _paused: set[int] = field(default_factory=set)

    def acknowledged(self, event: Acknowledged) -> None:
        before_s = self._last_s.get(event.partition, event.at_s)
        self._last_s[event.partition] = event.at_s
        if self.phase is not Phase.DOWN or event.partition not in self._paused:
            return
        self.pause_s = max(self.pause_s, event.at_s - before_s)
        if event.reading.at_us > self._killed_us:
            self._paused.remove(event.partition)
            if not self._paused:
                self.phase, self.moved_s = Phase.MOVED, event.at_s

    def victim(self, leaders: Mapping[int, int]) -> int | None:
        """The node that leads most of the partitions with writes; None while one has no leader."""
        if not self._last_s or any(leaders.get(one, -1) < 0 for one in self._last_s):
            return None
        led = Counter(leaders[one] for one in self._last_s)
        return max(sorted(led), key=lambda node: led[node])

    def killed(self, node: int, leaders: Mapping[int, int], *, at_s: float, at_us: int) -> None:
        self.phase, self.node, self.killed_s, self._killed_us = Phase.DOWN, node, at_s, at_us
        self.led = frozenset(one for one, leader in leaders.items() if leader == node)
        self._paused = set(self.led & self._last_s.keys())

    def restarted(self, *, at_s: float) -> None:
        self.phase, self.restarted_s = Phase.RETURNING, at_s

    def back(self, *, at_s: float) -> None:
        self.phase, self.back_s = Phase.BACK, at_s

    @property
    def return_s(self) -> float:
        """From its restart until every copy is up to date again."""
        return self.back_s - self.restarted_s
