"""Signals that end a loop: what is in hand is finished, and what is done is stored."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def stopped_by(
    signals: Sequence[signal.Signals], stop: Callable[[], None], *, if_unhandled: bool = False
) -> Iterator[None]:
    """The first of these signals calls `stop`; the next one does what it did before.

    Only the main thread can have it so; elsewhere nothing changes. With `if_unhandled`, signals
    that the program handles itself are left to it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    chosen = [one for one in signals if not if_unhandled or _is_unhandled(one)]
    before: dict[int, Any] = {}

    def restore() -> None:
        for one, handler in before.items():
            signal.signal(one, handler)
        before.clear()

    def on_signal(number: int, frame: FrameType | None) -> None:
        restore()
        # Not here: it may take locks that the interrupted code holds.
        threading.Thread(target=stop, name="stop").start()

    before |= {one: signal.signal(one, on_signal) for one in chosen}
    try:
        yield
    finally:
        # A generator that nobody closed may end in another thread.
        if threading.current_thread() is threading.main_thread():
            restore()


def _is_unhandled(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_DFL
