"""The history of a sensor in the IoT template: what is unusual, and what it learns from it."""

import random
import statistics

import pytest

pytest.importorskip("pyspark")

from penstock.pipelines.templates.iot.anomalies import READINGS_MIN, History


def history_of(*temperatures: float) -> History:
    history = History()
    for temperature in temperatures:
        history = history.after(temperature)
    return history


def test_at_first_mean_and_variance_are_exact() -> None:
    chance = random.Random(1)
    temperatures = [chance.gauss(20, 0.3) for _ in range(30)]
    history = history_of(*temperatures)
    assert history.mean == pytest.approx(statistics.fmean(temperatures))
    assert history.variance == pytest.approx(statistics.pvariance(temperatures))


def test_without_a_history_nothing_is_unusual() -> None:
    assert not history_of(*[20.0] * (READINGS_MIN - 1)).is_unusual(90)
    assert history_of(*[20.0] * READINGS_MIN).is_unusual(90)


def test_a_calm_sensor_may_move_a_little() -> None:
    calm = history_of(*[20.0] * 100)
    assert not calm.is_unusual(21.0)
    assert calm.is_unusual(22.0)


def test_what_is_unusual_for_one_is_usual_for_another() -> None:
    chance = random.Random(2)
    lively = history_of(*[chance.gauss(20, 5) for _ in range(100)])
    assert not lively.is_unusual(35)
    assert lively.is_unusual(80)


def test_one_wrong_reading_moves_the_history_little() -> None:
    before = history_of(*[20.0] * 100)
    assert before.after(95.0).mean < 20.1


def test_a_sensor_may_change_its_ways() -> None:
    moved = history_of(*[20.0] * 100, *[40.0] * 100)
    assert not moved.is_unusual(40)
    assert moved.is_unusual(20) or moved.mean == pytest.approx(40, abs=5)
