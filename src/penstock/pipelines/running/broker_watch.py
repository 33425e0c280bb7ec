"""Looks whether brokers answer, so that a run that waits for them can say so.

The clients that wait are in Spark's Python processes, whose lines go to Spark's own output. So
the process that somebody started and watches looks for itself.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from penstock.client.connection import check_reachable
from penstock.client.errors import BrokerUnreachable

LOOK_EVERY_S = 2.0
LOOK_TIMEOUT_S = 2.0
# In a row: one may hit the moment of a restart.
FAILED_LOOKS_MIN = 2


class BrokerWatch:
    """A thread of its own, as a look may take a while."""

    def __init__(
        self,
        addresses: Iterable[str],
        *,
        every_s: float = LOOK_EVERY_S,
        look: Callable[[str, float], None] = check_reachable,
    ) -> None:
        self._addresses = tuple(dict.fromkeys(addresses))
        self._every_s = every_s
        self._look = look
        self._failed = dict.fromkeys(self._addresses, 0)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker watch", daemon=True)
        # By address, a sentence where nobody answers. Replaced as a whole, since others read it.
        self.silent: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        if self._addresses:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()

    def look_once(self) -> None:
        silent = {}
        for address in self._addresses:
            try:
                self._look(address, LOOK_TIMEOUT_S)
            except BrokerUnreachable as error:
                self._failed[address] += 1
                if self._failed[address] >= FAILED_LOOKS_MIN:
                    silent[address] = str(error)
            else:
                self._failed[address] = 0
        self.silent = silent

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            self.look_once()


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is new between two looks, in sentences; a reason that only changes is not."""
    begun = [f"{said} Waiting for it." for address, said in now.items() if address not in before]
    ended = [f"A broker answers at {address} again." for address in before if address not in now]
    return begun + ended
