"""The books of the pipeline in the demo: they must find what is missing, doubled or wrong."""

import pytest
from rich.console import Console

from penstock.cli.demo.events import Acknowledged, Alerted, Failed, Finished
from penstock.cli.demo.expectation import Expectation, Window
from penstock.cli.demo.pipeline_ledger import Arrivals, PipelineLedger
from penstock.cli.demo.pipeline_report import report
from penstock.cli.demo.pipeline_run import PipelineSummary
from penstock.cli.demo.pipeline_screen import LiveScreen, PlainScreen, state_text
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


def alerted(number: int, sensor: str = "s", controller: str = "one") -> Alerted:
    return Alerted(
        controller=controller,
        sensor=sensor,
        number=number,
        temperature=40.0,
        usual=20.0,
        latency_ms=1500.0,
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
        books.take(Acknowledged(reading=one, partition=0, offset=offset))
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
    assert "in the table 4  windows 1  alerts 1" in state_text(books)


def test_arrivals_in_any_order() -> None:
    arrivals = Arrivals()
    for number in (2, 0, 1, 4):
        arrivals.take("s", number)
    assert arrivals.missing({"s": 5}) == 1
    arrivals.take("s", 3)
    assert (arrivals.missing({"s": 5}), arrivals.repeated) == (0, 0)
    for number in (3, 9, 9):
        arrivals.take("s", number)
    assert arrivals.repeated == 2


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


def test_a_failed_thread_fails_the_demo() -> None:
    with pytest.raises(ValueError, match="broken"):
        ledger().take(Failed(error=ValueError("broken")))


def test_without_a_terminal_each_alert_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    screen = PlainScreen()
    books = ledger()
    screen.show(books, 1.0)
    screen.show(books, 1.1)
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 2
    assert "one hears: s says 40.0 degrees, usual are 20.0" in shown[0]


def test_on_a_terminal_windows_and_alerts_are_tables(capsys: pytest.CaptureFixture[str]) -> None:
    screen = LiveScreen()
    screen.show(ledger(), 12.0)
    assert screen.picture is not None
    Console(width=100).print(screen.picture)
    shown = capsys.readouterr().out
    assert "Penstock demo, 12 s" in shown
    assert "00:00:00 to 00:00:10" in shown
    assert "s, reading 2" in shown


def summary(**changes: int) -> PipelineSummary:
    values = {
        "produced": 4,
        "archived": 4,
        "missing": 0,
        "repeated": 0,
        "windows": 1,
        "windows_wrong": 0,
        "alerts_expected": 1,
        "alerts_wrong": 0,
    }
    return PipelineSummary(
        seconds=2.0,
        alerts={"one": 1},
        latency_p50_ms=1500.0,
        latency_p99_ms=1500.0,
        latest=(window(),),
        **(values | changes),
    )


def test_the_report_shows_what_spark_computed_and_what_was_checked() -> None:
    text = report(summary())
    assert "s       00:00:00 to 00:00:10         2    21.00   20.00    22.00" in text
    assert "4 readings in the table: 0 missing, 0 twice" in text
    assert "Checked: every reading is in the table exactly once" in text


@pytest.mark.parametrize(
    "fault", ["missing", "repeated", "windows_wrong", "alerts_wrong", "produced", "windows"]
)
def test_any_fault_fails_the_demo(fault: str) -> None:
    broken = summary(**{fault: 0 if fault in ("produced", "windows") else 1})
    assert not broken.passed
    assert "Checked" not in report(broken)
