"""The demo's screen and report: what matters is there at 80 by 24, and nothing is made up."""

import io
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.cli.demo.cluster import NodeState
from penstock.cli.demo.events import Acknowledged, Alerted, ClusterSeen, Consumed
from penstock.cli.demo.expectation import Expectation, Window
from penstock.cli.demo.frame import Rates, bars, frame
from penstock.cli.demo.ledger import Ledger
from penstock.cli.demo.pipeline_ledger import PipelineLedger
from penstock.cli.demo.readings import Reading
from penstock.cli.demo.report import (
    FailoverSummary,
    PipelineSummary,
    Summary,
    broker_summary,
    report,
)
from penstock.cli.demo.screen import LiveScreen, PlainScreen, Recorder
from penstock.cli.demo.view import View, failover_texts
from tests.unit.cli.test_demo_pipeline import HotIsUnusual

SECOND_US = 1_000_000
SENSORS = 24
LEADERS = {0: 1, 1: 2, 2: 3}
UP = dict.fromkeys((1, 2, 3), NodeState.UP)


def acknowledged(number: int, at_s: float, partition: int) -> Acknowledged:
    at_us = round(at_s * SECOND_US)
    reading = Reading(sensor=f"s{partition}", number=number, temperature=20.0, at_us=at_us)
    return Acknowledged(
        reading=reading, partition=partition, offset=number, at_us=at_us + 3_000, at_s=at_s
    )


def consumed(number: int, partition: int) -> Consumed:
    return Consumed(
        controller="controller-1",
        sensor=f"s{partition}",
        number=number,
        partition=partition,
        offset=number,
        sent_us=0,
        latency_ms=5.0,
    )


def books() -> Ledger:
    """Ten readings in each partition, all of them read."""
    ledger = Ledger()
    ledger.take(ClusterSeen(leaders=LEADERS, under_replicated=0, at_s=1.0))
    for number in range(10):
        for partition in LEADERS:
            ledger.take(acknowledged(number, 5.0 + number / 10, partition))
            ledger.take(consumed(number, partition))
    return ledger


def pipeline_books() -> PipelineLedger:
    """A window of each sensor and more alerts than any screen can hold."""
    ledger = PipelineLedger(
        Expectation(window_us=SECOND_US, lateness_us=SECOND_US, new_history=HotIsUnusual)
    )
    ledger.take_windows(
        Window(
            begins_us=0,
            ends_us=SECOND_US,
            sensor=f"sensor-{number:02}",
            readings=104,
            average=12.345,
            lowest=-11.5,
            highest=13.0,
        )
        for number in range(1, SENSORS + 1)
    )
    ledger.take_batches({"alerts": (2, 812), "table": (2, 1400)}, at_us=10 * SECOND_US)
    for number in range(60):
        ledger.take(
            Alerted(
                controller="controller-2",
                sensor="sensor-24",
                number=number,
                temperature=-31.5,
                usual=21.5,
                at_us=(9 + number) * SECOND_US,
                latency_ms=900.0 + number,
            )
        )
    return ledger


def view(ledger: Ledger, pipeline: PipelineLedger | None = None, now_s: float = 21.0) -> View:
    return View(
        started_s=0.0,
        now_s=now_s,
        seconds=30.0,
        nodes=UP,
        ledger=ledger,
        pipeline=pipeline,
        spark_starts=1,
        spark_warm_s=14.0,
    )


def kill_and_return(ledger: Ledger) -> None:
    """Node 2 dies at 15 s, its partition pauses from 14.9 to 16.1 s, and it is back at 20 s."""
    ledger.take(acknowledged(10, 14.9, 1))
    ledger.failover.killed(2, LEADERS, at_s=15.0, at_us=15 * SECOND_US)
    ledger.take(acknowledged(11, 16.1, 1))
    ledger.failover.restarted(at_s=18.0)
    ledger.failover.back(at_s=20.0)


def drawn(shown: View, width: int, height: int) -> list[str]:
    rates = Rates()
    for half_seconds in range(60):
        rates.look(shown.ledger, half_seconds / 2)
    console = Console(width=width, height=height, file=io.StringIO())
    console.print(frame(shown, rates, width=width, height=height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (120, 40)])
def test_what_matters_fits_on_the_screen(width: int, height: int) -> None:
    ledger = books()
    kill_and_return(ledger)
    lines = drawn(view(ledger, pipeline_books()), width, height)
    text = "\n".join(lines)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert "…" not in text
    for expected in (
        "Penstock demo, 21 of 30 s",
        "partition 2",
        "all copies are up to date",
        "32 acknowledged, p50 3 ms, p99 3 ms",
        "node 2 killed at 15 s: writes paused 1.20 s; 0 lost, 0 doubled",
        "node 2 is back, in sync 2.0 s after its restart",
        "warm after 14 s",
        "sensor-01",
        "59 since it was warm: p50 0.9 s, p99 1.0 s; 1 earlier not timed",
        "-31.5 instead of 21.5",
        "heard by controller-2 after 1.0 s",
    ):
        assert expected in text, expected
    assert text.count("heard by") >= height // 6


def test_a_larger_screen_shows_more() -> None:
    shown = view(books(), pipeline_books())
    small, large = ("\n".join(drawn(shown, *size)) for size in ((80, 24), (120, 40)))
    assert small.count("heard by") < large.count("heard by")
    assert small.count("sensor-0") < large.count("sensor-0")


def test_a_screen_that_is_too_small_keeps_the_alerts() -> None:
    lines = drawn(view(books(), pipeline_books()), 80, 17)
    assert len(lines) <= 17
    assert "heard by" in lines[-1]


def test_the_first_screen_shows_the_nodes() -> None:
    shown = replace(view(Ledger(), now_s=0.3), nodes=dict.fromkeys((1, 2, 3), NodeState.STARTING))
    text = "\n".join(drawn(shown, 80, 24))
    assert text.count("starting") == 3
    assert "one node will be killed after 15 s" in text


def test_a_killed_node_leads_nothing_and_the_pause_counts_up() -> None:
    ledger = books()
    ledger.failover.killed(2, LEADERS, at_s=15.0, at_us=15 * SECOND_US)
    ledger.under_replicated = 3
    shown = replace(view(ledger, now_s=15.4), nodes={**UP, 2: NodeState.KILLED})
    lines = drawn(shown, 80, 24)
    assert any(line.split() == ["2", "killed", "nothing"] for line in lines)
    assert any(
        "killed at 15 s with SIGKILL: its writes pause, 0.4 s so far" in line for line in lines
    )


def test_a_gap_in_the_readings_is_shown_as_a_loss() -> None:
    ledger = books()
    kill_and_return(ledger)
    ledger.take(consumed(12, 1))
    assert "2 lost, 0 doubled" in failover_texts(view(ledger))[0]


def test_each_frame_covers_the_whole_terminal_also_after_a_resize() -> None:
    """So nothing of an old frame stays."""
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=120, height=40)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        screen = LiveScreen(live)
        for now_s, width, height in ((1.0, 120, 40), (2.0, 80, 24), (3.0, 100, 50)):
            console.size = (width, height)  # type: ignore[assignment]
            output.seek(0)
            output.truncate()
            screen.show(view(books(), pipeline_books(), now_s=now_s))
            painted = Text.from_ansi(output.getvalue().removeprefix("\x1b[H")).plain.split("\n")
            assert [len(line) for line in painted] == [width] * height


def test_bars_show_the_last_rates_and_never_more_than_there_is_room_for() -> None:
    assert bars([100.0, 0.0, 50.0, 100.0], 3) == "▁▅█"
    assert bars([1.0], 0) == ""
    assert bars([], 5) == ""


def test_without_a_terminal_each_alert_and_each_phase_has_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen, ledger, pipeline = PlainScreen(), books(), pipeline_books()
    screen.show(view(ledger, pipeline))
    screen.show(view(ledger, pipeline, now_s=21.1))
    kill_and_return(ledger)
    screen.show(view(ledger, pipeline, now_s=21.2))
    shown = capsys.readouterr().out.splitlines()
    assert sum("controller-2 hears: sensor-24 says -31.5 degrees" in line for line in shown) == 40
    assert [line for line in shown if "failover" in line] == [
        " 21.0 s  failover: one node will be killed after 15 s",
        " 21.2 s  failover: node 2 killed at 15 s: writes paused 1.20 s; 0 lost, 0 doubled",
        " 21.2 s  failover: node 2 is back, in sync 2.0 s after its restart",
    ]
    assert sum("sensors 30 (" in line for line in shown) == 1


def test_the_picture_is_the_last_screen_from_while_the_sensors_sent(tmp_path: Path) -> None:
    ledger, path = books(), tmp_path / "demo.svg"
    recorder = Recorder(None, path)
    recorder.show(view(ledger, pipeline_books()))
    kept = path.read_text()
    text = "".join(ElementTree.fromstring(kept).itertext()).replace("\xa0", " ")
    assert "Penstock demo, 21 of 30 s" in text
    assert not re.search(r"https?://(?!www\.w3\.org/)", kept), "a picture fetches nothing"
    ledger.sent = {"s0": 10, "s1": 10, "s2": 10}
    recorder.show(view(ledger, pipeline_books(), now_s=31.0))
    assert path.read_text() == kept


# The report


def summary(**changes: object) -> Summary:
    ledger = books()
    kill_and_return(ledger)
    ledger.take(consumed(10, 1))
    ledger.take(consumed(11, 1))
    ledger.sent = {"s0": 10, "s1": 12, "s2": 10}
    found = broker_summary(ledger, seconds=2.0, lag_at_end=0, pipeline=None)
    return replace(found, **changes)  # type: ignore[arg-type]


def pipeline_summary(**changes: int) -> PipelineSummary:
    values = {
        "archived": 32,
        "missing": 0,
        "doubled": 0,
        "windows": 1,
        "windows_wrong": 0,
        "windows_late": 0,
        "alerts_expected": 3,
        "alerts_wrong": 0,
        "alerts_left_out": 1,
        "spark_starts": 1,
    }
    return PipelineSummary(
        alerts={"controller-1": 3},
        warm_after_s=14.2,
        latency_p50_ms=900.0,
        latency_p99_ms=1500.0,
        latest=tuple(pipeline_books().latest_windows()[:1]),
        **(values | changes),
    )


def test_the_report_says_what_was_checked_and_how_long_the_writes_paused() -> None:
    text = report(summary())
    assert "32 readings in 2.0 s" in text
    assert "0 lost, 0 doubled, 0 out of order" in text
    assert "node 2 was killed (SIGKILL) and led 1 of the partitions" in text
    assert "writes paused 1.20 s; after its restart it was in sync in 2.0 s" in text
    assert "Checked: every reading arrived once" in text


def test_the_report_of_spark_says_what_is_not_timed() -> None:
    text = report(summary(pipeline=pipeline_summary()))
    assert "sensor-01  00:00:00 to 00:00:01       104    12.35  -11.50    13.00" in text
    assert "32 readings in the table: 0 missing, 0 twice" in text
    assert "2 timed from sensor to controller: p50 0.9 s, p99 1.5 s" in text
    assert "1 on readings from before Spark was warm (14 s) are not timed" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "Every reading is in the table exactly once" in text


def test_a_second_start_of_spark_is_said() -> None:
    assert "Spark       started twice" in report(summary(pipeline=pipeline_summary(spark_starts=2)))


@pytest.mark.parametrize("fault", ["missing", "doubled", "out_of_order", "lag_at_end", "produced"])
def test_any_fault_of_the_brokers_fails_the_demo(fault: str) -> None:
    broken = summary(**{fault: 0 if fault == "produced" else 1})
    assert summary().passed
    assert not broken.passed
    assert "Checked" not in report(broken)


@pytest.mark.parametrize(
    "fault", ["missing", "doubled", "windows_wrong", "alerts_wrong", "windows"]
)
def test_any_fault_of_the_pipeline_fails_the_demo(fault: str) -> None:
    assert summary(pipeline=pipeline_summary()).passed
    broken = pipeline_summary(**{fault: 0 if fault == "windows" else 1})
    assert not summary(pipeline=broken).passed
    assert "Checked" not in report(summary(pipeline=broken))


def test_a_node_that_did_not_come_back_fails_the_demo() -> None:
    lost = FailoverSummary(
        node=2, partitions_led=1, writes_paused_s=0.0, back_after_s=0.0, is_complete=False
    )
    assert not summary(failover=lost).passed
    assert "not seen to its end" in report(summary(failover=lost))
