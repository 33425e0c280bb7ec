"""Percentiles of latencies are right to within a bucket, however they were collected."""

import pytest

from penstock.client.latencies import Latencies


def of(*seconds: float) -> Latencies:
    made = Latencies()
    for one in seconds:
        made.add(one)
    return made


def test_percentiles_are_right_to_two_percent() -> None:
    found = of(*(number / 1000 for number in range(1, 1001)))
    for percent in (50.0, 95.0, 99.0, 99.9):
        assert found.percentile_s(percent) == pytest.approx(percent / 100, rel=0.025)
    assert found.longest_s == 1.0


def test_none_is_longer_than_the_longest() -> None:
    assert of(0.0123).percentile_s(99.9) == 0.0123
    assert of(0.0, 0.0).percentile_s(50) == 0.0


def test_without_any_there_is_nothing_to_tell() -> None:
    assert Latencies().summary_ms() == {"p50": 0, "p95": 0, "p99": 0, "p99.9": 0, "max": 0}


def test_those_of_several_workers_add_up() -> None:
    merged = of(0.001, 0.002)
    merged.merge(of(0.003, 0.010))
    assert merged.count == 4
    assert merged.counts == of(0.001, 0.002, 0.003, 0.010).counts
    assert merged.longest_s == 0.010
