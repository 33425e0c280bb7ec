"""How long to go on trying: pauses that grow, and an end when nothing gets better for too long."""

import threading
import time
from collections.abc import Callable
from random import Random

from penstock.client.errors import ClientError
from penstock.client.wire.errors import GaveUp

PAUSE_S_MIN = 0.02
PAUSE_S_MAX = 0.5


class Stopped(Exception):
    """Whoever waited was told to stop; not an error of anybody."""


class Patience:
    """Of one operation; `progress` says that things go well again."""

    def __init__(
        self,
        what: str,
        limit_s: Callable[[], float],
        *,
        stop: threading.Event | None = None,
        random: Random | None = None,
    ) -> None:
        # Continues the sentence "Gave up on ...".
        self._what = what
        # Asked each time, since it depends on whether a broker was ever reached.
        self._limit_s = limit_s
        self._stop = stop or threading.Event()
        self._random = random or Random()
        self.progress()

    def progress(self) -> None:
        self._since = time.monotonic()
        self._pause_s = PAUSE_S_MIN

    @property
    def waited_s(self) -> float:
        """How long it is since things last went well."""
        return time.monotonic() - self._since

    def check(self, reason: str | ClientError) -> None:
        """Raises GaveUp, or the reason if it is an error itself, when the time is over."""
        if self._stop.is_set():
            raise Stopped
        limit_s = self._limit_s()
        if self.waited_s <= limit_s:
            return
        if isinstance(reason, ClientError):
            raise reason
        raise GaveUp(f"Gave up on {self._what} after {limit_s:g} s without progress: {reason}.")

    def next_pause_s(self, reason: str | ClientError) -> float:
        """How long to wait before the next attempt, a little longer each time; checks first."""
        self.check(reason)
        # Clients that lost the same broker must not all come back at one moment.
        pause_s = self._pause_s * self._random.uniform(0.75, 1.25)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        return pause_s

    def pause(self, reason: str | ClientError) -> None:
        if self._stop.wait(self.next_pause_s(reason)):
            raise Stopped
