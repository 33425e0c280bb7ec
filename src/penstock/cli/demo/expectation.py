"""What the pipeline should come to, computed by plain Python from what the sensors sent."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

from penstock.cli.demo.readings import Reading

# The order in which Spark adds the readings up is its own.
AVERAGE_TOLERANCE = 1e-9
# Spark asks for the ends of the partitions of a batch one after the other.
LATENESS_MARGIN_US = 1_000_000


class History(Protocol):
    """Of one sensor: the pipeline's own rule, in anomalies.py."""

    def is_unusual(self, temperature: float) -> bool: ...

    def after(self, temperature: float) -> Self: ...


@dataclass(slots=True, kw_only=True)
class Average:
    """The readings of one sensor in one window."""

    readings: int = 0
    total: float = 0.0
    lowest: float = math.inf
    highest: float = -math.inf

    @property
    def average(self) -> float:
        return self.total / self.readings

    def add(self, temperature: float) -> None:
        self.readings += 1
        self.total += temperature
        self.lowest = min(self.lowest, temperature)
        self.highest = max(self.highest, temperature)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A row of the table of averages; times are microseconds since 1970."""

    begins_us: int
    ends_us: int
    sensor: str
    readings: int
    average: float
    lowest: float
    highest: float

    def is_like(self, other: "Window") -> bool:
        """Equal, but for the last digits of the average."""
        mine, theirs = self._exact(), other._exact()
        return mine == theirs and math.isclose(
            self.average, other.average, rel_tol=AVERAGE_TOLERANCE, abs_tol=AVERAGE_TOLERANCE
        )

    def _exact(self) -> tuple[object, ...]:
        times = (self.begins_us, self.ends_us)
        return (*times, self.sensor, self.readings, self.lowest, self.highest)


WindowKey = tuple[int, str]
Alert = tuple[str, int]


class Expectation:
    """Takes each sensor's readings in their order; grows with windows and alerts, not readings."""

    def __init__(
        self, *, window_us: int, lateness_us: int, new_history: Callable[[], History]
    ) -> None:
        self.alerts: set[Alert] = set()
        # Windows with a reading that came so late that Spark may have closed them without it.
        self.late: set[WindowKey] = set()
        self._window_us = window_us
        self._lateness_us = lateness_us
        self._new_history = new_history
        self._histories: dict[str, History] = {}
        self._averages: dict[WindowKey, Average] = {}
        self._latest_us = 0

    def take(self, reading: Reading, *, delay_us: int = 0) -> None:
        """`delay_us` is how long the reading took to reach the topic."""
        self._latest_us = max(self._latest_us, reading.at_us)
        begins_us = reading.at_us - reading.at_us % self._window_us
        key = (begins_us, reading.sensor)
        if delay_us > self._lateness_us - LATENESS_MARGIN_US:
            self.late.add(key)
        average = self._averages.setdefault(key, Average())
        average.add(reading.temperature)
        history = self._histories.get(reading.sensor) or self._new_history()
        if history.is_unusual(reading.temperature):
            self.alerts.add((reading.sensor, reading.number))
        self._histories[reading.sensor] = history.after(reading.temperature)

    def closed_windows(self) -> dict[WindowKey, Window]:
        """Those to which nothing can be added any more; Spark counts time in milliseconds."""
        watermark_us = self._latest_us // 1000 * 1000 - self._lateness_us
        return {
            (begins_us, sensor): Window(
                begins_us=begins_us,
                ends_us=begins_us + self._window_us,
                sensor=sensor,
                readings=average.readings,
                average=average.average,
                lowest=average.lowest,
                highest=average.highest,
            )
            for (begins_us, sensor), average in self._averages.items()
            if begins_us + self._window_us <= watermark_us
        }
