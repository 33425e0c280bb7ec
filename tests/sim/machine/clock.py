"""The clocks of a simulated machine: the one never goes back, the other may jump."""

from tests.sim.machine.loop import SimulatedLoop

EPOCH_MS = 1_700_000_000_000


class SimulatedClock:
    def __init__(self, loop: SimulatedLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1000) + self.skew_ms

    def monotonic(self) -> float:
        return self._loop.time()
