"""Finds readings that are unlike the history of their own sensor.

Spark keeps a `History` for each sensor, over micro-batches and over restarts: how many readings
there were, their mean and their variance. Both forget slowly, so that a sensor may change its ways.
"""

# Spark names the methods.
# ruff: noqa: N802, N803

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd

# Before that many readings nothing is unusual.
READINGS_MIN = 8
# What a new reading weighs against all that came before, once there are enough of them.
WEIGHT_MIN = 0.02
DEVIATIONS_MAX = 6.0
# Degrees: a sensor that says the same all day long may still move a little.
DEVIATION_MIN = 0.25

ANOMALY = (
    "sensor STRING, number BIGINT, at TIMESTAMP, temperature DOUBLE, usual DOUBLE, "
    "deviations DOUBLE"
)
HISTORY = "readings BIGINT, mean DOUBLE, variance DOUBLE"


def find_anomalies(readings: DataFrame) -> DataFrame:
    """The step of the pipeline: its parameter is the dataset that it reads."""
    return readings.groupBy("sensor").transformWithStateInPandas(
        AnomalyFinder(), outputStructType=ANOMALY, outputMode="append", timeMode="none"
    )


class History(NamedTuple):
    """What a sensor has said so far."""

    readings: int = 0
    mean: float = 0.0
    variance: float = 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation, in degrees."""
        return max(math.sqrt(self.variance), DEVIATION_MIN)

    def is_unusual(self, temperature: float) -> bool:
        if self.readings < READINGS_MIN:
            return False
        return abs(temperature - self.mean) > DEVIATIONS_MAX * self.deviation

    def after(self, temperature: float) -> "History":
        """Exact mean and variance at first; then the past fades, and no reading moves it far."""
        weight = max(WEIGHT_MIN, 1 / (self.readings + 1))
        difference = temperature - self.mean
        if self.is_unusual(temperature):
            difference = math.copysign(DEVIATIONS_MAX * self.deviation, difference)
        return History(
            self.readings + 1,
            self.mean + weight * difference,
            (1 - weight) * (self.variance + weight * difference * difference),
        )


class AnomalyFinder(StatefulProcessor):
    """Spark calls this once per sensor and micro-batch, where the sensor's state is."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.history = handle.getValueState("history", HISTORY)

    def handleInputRows(
        self, key: Any, rows: Iterator["pd.DataFrame"], timerValues: Any
    ) -> Iterator["pd.DataFrame"]:
        import pandas as pd

        # A sensor's readings share a partition, but a shuffle promises no order.
        readings = pd.concat(list(rows)).sort_values("number", kind="stable")
        kept = self.history.get()
        history = History() if kept is None else History(*kept)
        found = []
        for place, temperature in enumerate(readings["temperature"].tolist()):
            if history.is_unusual(temperature):
                deviations = (temperature - history.mean) / history.deviation
                found.append((place, history.mean, deviations))
            history = history.after(temperature)
        self.history.update(tuple(history))
        if found:
            places, means, distances = zip(*found, strict=True)
            anomalies = readings.iloc[list(places)][["sensor", "number", "at", "temperature"]]
            yield anomalies.assign(usual=list(means), deviations=list(distances))

    def close(self) -> None:
        """There is nothing to put away."""
