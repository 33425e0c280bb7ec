"""Log lines about peers, of which a misbehaving one could otherwise cause thousands a second."""

import logging
from typing import Final

from penstock.model.clock import Clock

KINDS_MAX: Final = 64


class OccasionalLog:
    """At most one line of each kind per interval; the next one says how many were left out."""

    def __init__(self, clock: Clock, *, interval_seconds: float = 5.0) -> None:
        self._clock = clock
        self._interval = interval_seconds
        self._last: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def warning(self, logger: logging.Logger, kind: str, text: str, *values: object) -> None:
        """`kind` comes from our code, never from a peer, so there are few."""
        assert kind in self._last or len(self._last) < KINDS_MAX
        now = self._clock.monotonic()
        last = self._last.get(kind)
        if last is not None and now - last < self._interval:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._last[kind] = now
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            text += f" ({left_out} more like it)"
        logger.warning(text, *values)
