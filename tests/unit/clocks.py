"""The clock of unit tests: time passes when a test says so."""

# What most tests begin at: in the year 2023, and later than anything that they call old.
START_MS = 1_700_000_000_000


class ManualClock:
    def __init__(self, ms: int = START_MS) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000
