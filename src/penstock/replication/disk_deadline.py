"""How long a node waits for its disk: one that hangs without an error has failed all the same.

A job counts from when it was handed over, so one that waits for a thread among others that hang is
as late as they are.
"""

import math
from typing import Final

from penstock.replication.exchange import TICK_SECONDS

DISK_TIMEOUT_S: Final = 3.0


class DiskHangs(OSError):
    """The disk has not answered in time; it may do so yet."""


class DiskDeadline:
    """Shared by all that hands jobs to the disk of one node.

    Time is counted in ticks: a process that was paused must not conclude from the time it missed
    that its disk was silent.
    """

    __slots__ = ("_ticks_max", "_timeout_s", "now")

    def __init__(self, timeout_s: float = DISK_TIMEOUT_S) -> None:
        self.now = 0
        self._timeout_s = timeout_s
        self._ticks_max = math.ceil(timeout_s / TICK_SECONDS)

    def tick(self) -> None:
        self.now += 1

    def is_over(self, since: int) -> bool:
        """For what was handed over when `now` was `since`; a shorter stall is never over."""
        return self.now - since > self._ticks_max

    def error(self) -> DiskHangs:
        return DiskHangs(f"the disk has not answered for {self._timeout_s:g} s")
