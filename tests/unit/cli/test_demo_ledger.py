"""The demo's books: they must find what is missing, swapped or repeated."""

import pytest

from penstock.cli.demo.events import Acknowledged, Assigned, Consumed, Failed, Finished
from penstock.cli.demo.ledger import Latencies, Ledger
from penstock.cli.demo.readings import Reading, parse


def acknowledged(offset: int) -> Acknowledged:
    reading = Reading(sensor="s", number=offset, temperature=20.0, at_us=0)
    return Acknowledged(reading=reading, partition=0, offset=offset)


def consumed(number: int, *, offset: int | None = None, controller: str = "one") -> Consumed:
    return Consumed(
        controller=controller,
        sensor="s",
        number=number,
        partition=0,
        offset=number if offset is None else offset,
        latency_ms=1.0,
    )


def ledger_of(numbers: list[int], *, sent: int) -> Ledger:
    ledger = Ledger()
    for offset in range(sent):
        ledger.take(acknowledged(offset))
    for number in numbers:
        ledger.take(consumed(number))
    ledger.take(Finished(sent={"s": sent}))
    return ledger


def test_everything_in_order_is_complete() -> None:
    ledger = ledger_of([0, 1, 2], sent=3)
    assert ledger.is_complete()
    assert (ledger.produced, ledger.consumed["one"], ledger.out_of_order) == (3, 3, 0)


def test_nothing_is_complete_before_the_sensors_are_done() -> None:
    assert not Ledger().is_complete()


@pytest.mark.parametrize("numbers", [[0, 2], [0, 1], [1, 2], []])
def test_a_reading_that_never_came_is_missing(numbers: list[int]) -> None:
    ledger = ledger_of(numbers, sent=3)
    assert not ledger.is_complete()
    assert ledger.missing()["s"] > 0


def test_swapped_readings_are_out_of_order() -> None:
    assert ledger_of([1, 0], sent=2).out_of_order == 1


def test_a_reading_that_comes_again_is_repeated_but_not_wrong() -> None:
    ledger = ledger_of([0, 1, 1, 2], sent=3)
    assert ledger.is_complete()
    assert (ledger.repeated, ledger.out_of_order) == (1, 0)


def test_lag_is_what_is_acknowledged_but_not_seen() -> None:
    ledger = Ledger()
    ledger.take(Assigned(controller="one", partitions=frozenset({0})))
    ledger.take(Assigned(controller="two", partitions=frozenset({1})))
    for offset in range(5):
        ledger.take(acknowledged(offset))
    ledger.take(consumed(0))
    ledger.note_lag()
    assert (ledger.lag(), ledger.lag("one"), ledger.lag("two"), ledger.lag_max) == (4, 4, 0, 4)


def test_a_failed_thread_fails_the_demo() -> None:
    with pytest.raises(ValueError, match="broken"):
        Ledger().take(Failed(error=ValueError("broken")))


def test_percentiles() -> None:
    latencies = Latencies()
    for value in range(1, 101):
        latencies.add(float(value))
    assert (latencies.percentile(0.5), latencies.percentile(0.99)) == (50.0, 99.0)
    assert Latencies().percentile(0.5) == 0.0


def test_readings_travel_as_records() -> None:
    reading = Reading(sensor="s-1", number=3, temperature=20.5, at_us=1_700_000_000_123_456)
    assert parse(reading.value()) == reading
    assert b'"at": "2023-11-14T22:13:20.123456+00:00"' in reading.value()
