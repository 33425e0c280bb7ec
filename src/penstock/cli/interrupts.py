"""Ctrl-C and SIGTERM for commands that work for long: noticed between two steps, not inside one.

An exception that a signal raises inside librdkafka's callbacks gets lost or does harm there. So
the first signal is only noted, and the command ends at the next safe point: it delivers what it
has read, commits what it has written, and leaves its group. The second one ends it at once.
"""

import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

Item = TypeVar("Item")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """A signal asked the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Interrupts:
    """Notes signals while its `with` block runs."""

    def __init__(self) -> None:
        self.noted: int | None = None
        self._is_waiting = False
        self._before: dict[int, Any] = {}

    def check(self) -> None:
        """A safe point: raises Interrupted when a signal came."""
        if self.noted is not None:
            raise Interrupted(self.noted)

    def waiting_for(self, items: Iterator[Item]) -> Iterator[Item]:
        """The items, where the wait for the next one may be interrupted at any moment."""
        while True:
            # First, or a signal that comes between the two would be noted and nobody woken.
            self._is_waiting = True
            try:
                self.check()
                item = next(items)
            except StopIteration:
                return
            finally:
                self._is_waiting = False
            yield item

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.noted = number
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        if self._is_waiting:
            raise Interrupted(number)
