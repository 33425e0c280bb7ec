"""Counts how long things took, in buckets that are two percent wide: small, and easy to add up."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

_WIDTH = math.log(1.02)
# Everything shorter is in the first bucket.
SHORTEST_S = 1e-6
PERCENTILES = (50.0, 95.0, 99.0, 99.9)


@dataclass(slots=True)
class Latencies:
    counts: Counter[int] = field(default_factory=Counter)
    longest_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[int(math.log(max(seconds, SHORTEST_S) / SHORTEST_S) / _WIDTH)] += 1
        if seconds > self.longest_s:
            self.longest_s = seconds

    def merge(self, other: "Latencies") -> None:
        self.counts.update(other.counts)
        self.longest_s = max(self.longest_s, other.longest_s)

    @property
    def count(self) -> int:
        return self.counts.total()

    def percentile_s(self, percent: float) -> float:
        """At most this many percent took longer than that by more than a bucket's width."""
        wanted = math.ceil(self.count * percent / 100)
        passed = 0
        for bucket, count in sorted(self.counts.items()):
            passed += count
            if passed >= wanted:
                return min(SHORTEST_S * math.exp((bucket + 1) * _WIDTH), self.longest_s)
        return 0.0

    def summary_ms(self) -> Mapping[str, float]:
        """By the names in which they are shown: p50, p95, p99, p99.9 and max."""
        shown = {f"p{one:g}": self.percentile_s(one) * 1000 for one in PERCENTILES}
        return shown | {"max": self.longest_s * 1000}
