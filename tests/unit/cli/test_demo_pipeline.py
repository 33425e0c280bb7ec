"""The books of the pipeline in the demo: they must find what is missing, doubled or wrong."""

import pytest

from penstock.cli.demo.events import Acknowledged, Alerted, Finished
from penstock.cli.demo.expectation import Expectation, Window
from penstock.cli.demo.ledger import Arrivals
from penstock.cli.demo.pipeline_ledger import PipelineLedger
from penstock.cli.demo.readings import Reading

SECOND_US = 1_000_000


class HotIsUnusual:
    """A history that never learns."""

    def is_unusual(self, temperature: float) -> bool:
        return temperature > 30

    def after(self, temperature: float) -> "HotIsUnusual":
        return self


def reading(number: int, at_s: float, temperature: float = 20.0, sensor: str = "s") -> Reading:
    at_us = round(at_s * SECOND_US)
    return Reading(sensor=sensor, number=number, temperature=temperature, at_us=at_us)


def expectation(*readings: Reading) -> Expectation:
    expected = Expectation(
        window_us=10 * SECOND_US, lateness_us=5 * SECOND_US, new_history=HotIsUnusual
    )
    for one in readings:
        expected.take(one)
    return expected


def window(begins_s: int = 0, sensor: str = "s", **values: float) -> Window:
    content = {"readings": 2, "average": 21.0, "lowest": 20.0, "highest": 22.0} | values
    begins_us = begins_s * SECOND_US
    return Window(begins_us=begins_us, ends_us=begins_us + 10 * SECOND_US, sensor=sensor, **content)  # type: ignore[arg-type]


def alerted(number: int, at_s: float = 0.0, latency_ms: float = 1500.0) -> Alerted:
    return Alerted(
        controller="one",
        sensor="s",
        number=number,
        temperature=40.0,
        usual=20.0,
        at_us=round(at_s * SECOND_US),
        latency_ms=latency_ms,
    )


READINGS = (
    reading(0, 1, 20.0),
    reading(1, 9.999, 22.0),
    reading(2, 12, 40.0),
    reading(0, 15, 8.0, "t"),
)


def ledger() -> PipelineLedger:
    """All that `READINGS` lead to has arrived."""
    books = PipelineLedger(expectation())
    for offset, one in enumerate(READINGS):
        books.take(Acknowledged(reading=one, partition=0, offset=offset, at_us=one.at_us, at_s=0.0))
    books.take(Finished(sent={"s": 3, "t": 1}))
    books.take_archived((one.sensor, one.number) for one in READINGS)
    books.take_windows([window()])
    books.take(alerted(2))
    return books


def test_a_window_is_done_when_readings_are_later_than_its_end_by_the_lateness() -> None:
    at_the_edge = expectation(reading(0, 1), reading(1, 14.999))
    assert at_the_edge.closed_windows() == {}
    assert list(expectation(reading(0, 1), reading(1, 15)).closed_windows()) == [(0, "s")]


def test_a_window_holds_what_its_sensor_said_in_it() -> None:
    found = expectation(*READINGS).closed_windows()
    assert found == {(0, "s"): window()}


def test_what_a_history_finds_unusual_is_an_alert() -> None:
    assert expectation(*READINGS).alerts == {("s", 2)}


@pytest.mark.parametrize(
    ("other", "is_like"),
    [
        (window(average=21.0 + 1e-12), True),
        (window(average=21.001), False),
        (window(readings=3), False),
        (window(highest=22.1), False),
        (window(10), False),
    ],
)
def test_windows_are_alike_but_for_the_last_digits_of_the_average(
    other: Window, is_like: bool
) -> None:
    assert window().is_like(other) is is_like


def test_everything_in_its_place_is_complete() -> None:
    books = ledger()
    assert books.is_complete()
    assert (books.missing(), books.wrong_windows(), books.wrong_alerts()) == (0, [], set())
    assert books.latest_windows() == [window()]
    assert (books.archive.rows, books.alerts_by_controller.total()) == (4, 1)


def test_arrivals_in_any_order() -> None:
    arrivals = Arrivals()
    for number in (2, 0, 1, 4):
        arrivals.take("s", number)
    assert arrivals.missing({"s": 5}) == 1
    arrivals.take("s", 3)
    assert (arrivals.missing({"s": 5}), arrivals.doubled) == (0, 0)
    for number in (3, 9, 9):
        arrivals.take("s", number)
    assert arrivals.doubled == 2


def test_a_reading_that_is_not_in_the_table_is_missing() -> None:
    books = ledger()
    books.take(Finished(sent={"s": 4, "t": 1}))
    assert books.missing() == 1
    assert not books.is_complete()


@pytest.mark.parametrize("found", [window(readings=1), window(20), window(sensor="u")])
def test_a_window_that_differs_is_wrong(found: Window) -> None:
    books = ledger()
    books.take_windows([found])
    assert books.wrong_windows()
    assert not books.is_complete()


def test_a_window_that_comes_twice_is_counted() -> None:
    books = ledger()
    books.take_windows([window()])
    assert books.windows_repeated == 1


def test_an_alert_too_many_or_too_few_is_wrong() -> None:
    books = ledger()
    books.take(alerted(1))
    assert books.wrong_alerts() == {("s", 1)}
    assert PipelineLedger(expectation(*READINGS)).wrong_alerts() == {("s", 2)}


def test_a_window_with_a_reading_that_came_too_late_is_not_compared() -> None:
    """A write that waited for a new leader may have found its window closed."""
    books = ledger()
    books.expectation.take(reading(3, 2), delay_us=4_500_000)
    assert books.expectation.late == {(0, "s")}
    assert books.wrong_windows() == []


def test_a_reading_that_waited_less_than_the_lateness_is_compared() -> None:
    books = ledger()
    books.expectation.take(reading(3, 2), delay_us=3_900_000)
    assert books.wrong_windows() == [(0, "s")]


def test_spark_is_warm_when_every_flow_has_run_twice_and_keeps_up() -> None:
    books = PipelineLedger(expectation())
    books.take_batches({}, at_us=1)
    books.take_batches({"alerts": (3, 900), "table": (1, 1000)}, at_us=2)
    books.take_batches({"alerts": (4, 900), "table": (2, 3001)}, at_us=3)
    assert (books.is_warm, books.warm_flows) == (False, 1)
    books.take_batches({"alerts": (5, 800), "table": (3, 3000)}, at_us=4)
    books.take_batches({"alerts": (6, 800), "table": (4, 1000)}, at_us=5)
    assert (books.is_warm, books.warm_us) == (True, 4)


def test_a_machine_that_is_too_slow_counts_as_warm_after_some_batches() -> None:
    books = PipelineLedger(expectation())
    books.take_batches({"alerts": (7, 9000)}, at_us=1)
    assert not books.is_warm
    books.take_batches({"alerts": (8, 9000)}, at_us=2)
    assert books.is_warm


def test_only_alerts_on_readings_from_after_spark_was_warm_are_timed() -> None:
    books = PipelineLedger(expectation())
    books.take(alerted(0, at_s=1, latency_ms=30_000))
    books.take_batches({"alerts": (2, 800)}, at_us=10 * SECOND_US)
    # It was sent before, and heard after: it has waited for Spark to start.
    books.take(alerted(1, at_s=9.9, latency_ms=20_000))
    books.take(alerted(2, at_s=10.1, latency_ms=700))
    assert books.left_out == 2
    assert (books.latencies.counts.total(), books.latencies.percentile(0.99)) == (1, 700.0)
