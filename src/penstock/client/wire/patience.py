"""How long to go on trying: pauses that grow, and an end when nothing gets better for too long.

A long wait is reported: one line when it begins to, and one when things go on. A client
whose operations all wait for the same brokers says it once.
"""

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable
from random import Random

from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.client.wire.errors import GaveUp

PAUSE_S_MIN = 0.02
PAUSE_S_MAX = 0.5
# A change of leaders takes less, and nobody needs to hear of it.
UNSAID_S_MAX = 2.0
# Who gives up sooner than this tells the reason then.
WORTH_SAYING_S = 10.0
_MINUTE_S = 60

# Not below `penstock.client`, which keeps quiet: where nobody configures logging, as in the Python
# processes of Spark, these lines go to stderr.
LOGGER = logging.getLogger("penstock.waiting")


class Stopped(Exception):
    """A wait was cancelled on request, which is not an error."""


class Waits:
    """Which operation of a client has said that it waits; the others keep quiet meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._speaker: weakref.ref[Patience] | None = None

    def begin(self, patience: "Patience", reason: str | ClientError, limit_s: float) -> None:
        with self._lock:
            # One that has ended otherwise than well says no second line.
            if self._speaker is not None and self._speaker() is not None:
                return
            self._speaker = weakref.ref(patience)
        sentence = str(reason) if isinstance(reason, ClientError) else f"No progress: {reason}."
        LOGGER.warning(
            "%s Waiting up to %s (%s).", sentence, duration_words(limit_s), patience.what
        )

    def end(self, patience: "Patience", waited_s: float) -> None:
        with self._lock:
            if self._speaker is None or self._speaker() is not patience:
                return
            self._speaker = None
        LOGGER.warning("Continuing after %.0f s (%s).", waited_s, patience.what)


class Patience:
    """Of one operation; `progress` says that things go well again."""

    def __init__(
        self,
        what: str,
        limit_s: Callable[[], float],
        *,
        stop: threading.Event | None = None,
        random: Random | None = None,
        waits: Waits | None = None,
    ) -> None:
        # Continues the sentence "Gave up on ...".
        self.what = what
        # Asked each time, since it depends on whether a broker was ever reached.
        self._limit_s = limit_s
        self._stop = stop or threading.Event()
        self._random = random or Random()
        self._waits = waits or Waits()
        self._since = self._silent_until = -math.inf
        self.progress()

    def another(self, what: str) -> "Patience":
        """For a part of the operation, with the same limits."""
        return Patience(what, self._limit_s, stop=self._stop, waits=self._waits)

    def progress(self) -> None:
        now = time.monotonic()
        self._waits.end(self, now - self._since)
        self._since = now
        self._pause_s = PAUSE_S_MIN

    @property
    def waited_s(self) -> float:
        """How long it is since things last went well."""
        return time.monotonic() - self._since

    @property
    def refused_s(self) -> float:
        """The same without the time in which no broker answered: what those that do have said.

        A broker that has just come back may not know everything at once.
        """
        return time.monotonic() - max(self._since, self._silent_until)

    def check(
        self,
        reason: str | ClientError,
        *,
        is_silent: bool = False,
        refused_s_max: float = math.inf,
    ) -> None:
        """Raises GaveUp, or the reason if it is an error itself, when the time is over.

        `is_silent` says that the reason is that nobody answers.
        """
        if self._stop.is_set():
            raise Stopped
        if is_silent or isinstance(reason, BrokerUnreachable):
            self._silent_until = time.monotonic()
        limit_s = self._limit_s()
        waited_s = self.waited_s
        if waited_s > limit_s:
            self._give_up(reason, limit_s)
        if self.refused_s > refused_s_max:
            self._give_up(reason, refused_s_max)
        if waited_s > UNSAID_S_MAX and limit_s >= WORTH_SAYING_S:
            self._waits.begin(self, reason, limit_s)

    def _give_up(self, reason: str | ClientError, limit_s: float) -> None:
        if isinstance(reason, ClientError):
            raise reason
        raise GaveUp(f"Gave up on {self.what} after {limit_s:g} s without progress: {reason}.")

    def next_pause_s(
        self,
        reason: str | ClientError,
        *,
        is_silent: bool = False,
        refused_s_max: float = math.inf,
    ) -> float:
        """How long to wait before the next attempt, a little longer each time; checks first."""
        self.check(reason, is_silent=is_silent, refused_s_max=refused_s_max)
        # Clients that lost the same broker must not all come back at one moment.
        pause_s = self._pause_s * self._random.uniform(0.75, 1.25)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        return pause_s

    def pause(
        self,
        reason: str | ClientError,
        *,
        is_silent: bool = False,
        refused_s_max: float = math.inf,
    ) -> None:
        pause_s = self.next_pause_s(reason, is_silent=is_silent, refused_s_max=refused_s_max)
        if self._stop.wait(pause_s):
            raise Stopped


def duration_words(seconds: float) -> str:
    """Such as "10 min" or "90 s"."""
    minutes, rest = divmod(seconds, _MINUTE_S)
    return f"{minutes:g} min" if minutes and not rest else f"{seconds:g} s"
