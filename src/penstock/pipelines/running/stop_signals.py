"""SIGTERM and Ctrl-C end a run after its batch; the second one ends it at once."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from penstock.pipelines.running.gate import StopGate

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_by_signal(gate: StopGate, told: Callable[[], None] = lambda: None) -> Iterator[None]:
    """While the block runs the first signal closes the gate; only for a process's main thread.

    `told` is called from the handler and must not do more than note it.
    """

    def on_signal(number: int, frame: FrameType | None) -> None:
        gate.request()
        told()
        for one in SIGNALS:
            signal.signal(one, signal.SIG_DFL)

    before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
