"""SIGTERM and Ctrl-C end a run after its batch; the second one ends it at once."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from penstock.pipelines.running.gate import StopGate

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_by_signal(
    gate: StopGate, before_death: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """While the block runs the first signal closes the gate; only for a process's main thread.

    `before_death` is called in the handler of the second, which ends the process.
    """

    def on_first(number: int, frame: FrameType | None) -> None:
        gate.request()
        for one in SIGNALS:
            signal.signal(one, on_second)

    def on_second(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        before_death()
        os.kill(os.getpid(), number)

    before = {number: signal.signal(number, on_first) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
