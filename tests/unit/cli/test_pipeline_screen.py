"""What a screen shows of a pipeline, at each size of a terminal."""

import io
import re
import socket
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.segment import Segment

from penstock.cli.pipeline import run as run_command
from penstock.cli.pipeline import screen as screen_module
from penstock.cli.pipeline.screen import LiveScreen, PlainScreen, leave, screen
from penstock.cli.pipeline.screen_cells import (
    COLUMNS,
    age,
    cells,
    clock,
    duration,
    line,
    short_sink,
    size,
)
from penstock.cli.pipeline.screen_frame import Frame, headline, troubles, web_pages
from penstock.pipelines.running.flow_states import BY_URGENCY, FlowState
from penstock.pipelines.running.flows_run import FlowSummary
from penstock.pipelines.running.progress import Totals
from penstock.pipelines.running.run_record import Rest, RunState
from penstock.pipelines.running.watching import FlowView, Nobody, RunView
from tests.unit.cli.pipeline_views import BATCH, FLOW, RUN

VIEW = RunView(run=RUN, flows=(FLOW,))
NEEDED = ["flow", "state", "rows/s", "lag", "last batch"]
LONG_NAME = "vibration_spectra_of_compressors_by_factory_and_hour"


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.pipeline.screen_cells.now_ms", lambda: BATCH.ended_ms + 3_000)


def flows(*states: FlowState) -> tuple[FlowView, ...]:
    return tuple(
        replace(FLOW, name=f"flow-{number:02}", state=state) for number, state in enumerate(states)
    )


def lines_of(frame: Frame, width: int, height: int | None = None) -> list[str]:
    """As they are on a terminal of that size, without the blanks at the end of a line."""
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    drawn = Segment.split_lines(console.render(replace(frame, height=height)))
    return ["".join(part.text for part in one).rstrip() for one in drawn]


def names_in(header: str) -> list[str]:
    """The columns that a header names."""
    named = set(re.split(r"  +", header.strip()))
    return [column.name for column in COLUMNS if column.name in named]


def test_a_flow_as_a_row() -> None:
    assert dict(zip((column.name for column in COLUMNS), cells(FLOW), strict=True)) == {
        "flow": "averages",
        "state": "running",
        "rows/s": "5,000",
        "lag": "4,003",
        "last batch": "3 s ago",
        "rows": "20,000",
        "broken rules": "9",
        "dead letters": "7",
        "batch time": "310 ms",
        "watermark": "11-16 05:53:11",
        "state rows": "24",
        "state size": "8.5 kB",
        "batch": "12",
        "to": "delta /lake",
    }
    begun = dict(zip(COLUMNS, cells(replace(FLOW, last=None)), strict=True))
    assert {column.name for column, cell in begun.items() if cell} == {"flow", "state", "to"}


def test_a_rate_is_shown_of_flows_that_work() -> None:
    rates = {state: cells(replace(FLOW, state=state))[2] for state in FlowState}
    working = {FlowState.RUNNING: "5,000", FlowState.STOPPING: "5,000", FlowState.IDLE: "0"}
    assert {state: rate for state, rate in rates.items() if rate} == working


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200])
@pytest.mark.parametrize("name", ["raw", LONG_NAME])
def test_each_flow_is_one_line_and_none_is_too_long(width: int, name: str) -> None:
    rest = Rest(attempt=3, attempts=10, reason="It broke.", again_ms=BATCH.ended_ms + 121_000)
    resting = replace(FLOW, name=name, state=FlowState.RESTARTING, rest=rest)
    shown = lines_of(Frame(view=RunView(run=RUN, flows=(FLOW, resting))), width)
    assert len(shown[0]) <= width
    header, *rows = shown[1:4]
    assert all(len(each) <= width for each in shown)
    assert rows[0].startswith("averages")
    assert rows[1].startswith(name[:4])
    if width >= 60:
        assert names_in(header)[:5] == NEEDED
    if width >= 80:
        assert "restarts in 118 s (attempt 3)" in rows[1]


def test_wider_terminals_show_more_columns_and_the_widest_all() -> None:
    shown = {
        width: names_in(lines_of(Frame(view=VIEW), width)[1]) for width in (60, 80, 120, 160, 200)
    }
    assert shown[60] == [*NEEDED, "rows"]
    assert shown[80] == [*NEEDED, "rows", "broken rules", "dead letters"]
    assert shown[120] == [*NEEDED, "rows", "broken rules", "dead letters", "batch time", "to"]
    assert shown[200] == [column.name for column in COLUMNS]
    counts = [len(names) for names in shown.values()]
    assert counts == sorted(counts)


def test_a_column_that_has_nothing_to_say_takes_no_room() -> None:
    quiet = replace(FLOW, last=replace(BATCH, state_rows=0, state_bytes=0, watermark=None, lag={}))
    header = lines_of(Frame(view=RunView(run=RUN, flows=(quiet,))), 200)[1]
    assert not {"state rows", "state size", "watermark"} & set(names_in(header))
    begun = lines_of(Frame(view=RunView(run=RUN, flows=(replace(FLOW, last=None),))), 80)[1]
    assert names_in(begun) == [*NEEDED, "to"]


def test_a_dozen_flows_fit_a_small_terminal() -> None:
    states = [FlowState.RUNNING] * 8 + [FlowState.IDLE] * 4
    shown = lines_of(Frame(view=RunView(run=RUN, flows=flows(*states))), 80, 24)
    assert [row.split()[0] for row in shown[2:14]] == [f"flow-{number:02}" for number in range(12)]
    assert shown[14] == "Broken rules, by rows:"
    assert len(shown) <= 24


def test_what_does_not_fit_is_counted_and_failing_flows_come_first() -> None:
    states = [FlowState.RUNNING] * 20 + [FlowState.IDLE] * 17
    states += [FlowState.RESTARTING, FlowState.FAILED, FlowState.NO_BROKER]
    shown = lines_of(Frame(view=RunView(run=RUN, flows=flows(*states))), 80, 24)
    assert len(shown) == 24
    assert [row.split()[0] for row in shown[2:6]] == ["flow-38", "flow-37", "flow-39", "flow-00"]
    counted = next(row for row in shown if row.startswith("and"))
    rows = shown.index(counted) - 2
    assert counted == f"and {40 - rows} more: {23 - rows} running, 17 idle"
    for height in range(1, 24):
        assert len(lines_of(Frame(view=RunView(run=RUN, flows=flows(*states))), 80, height)) <= max(
            height, 4
        )


def test_all_states_have_an_urgency() -> None:
    assert set(BY_URGENCY) == set(FlowState)


def test_what_a_run_waits_for_is_shown_on_each_kind_of_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    silent = {"x:1": "No broker answers at x:1: connection refused."}
    waiting = replace(VIEW, run=replace(RUN, silent=silent))
    plain = PlainScreen()
    for view in (VIEW, waiting, waiting, VIEW, VIEW):
        plain.show(view)
    said = "No broker answers at x:1: connection refused. Waiting for it."
    assert capsys.readouterr().err.splitlines() == [said, "A broker answers at x:1 again."]
    assert said in lines_of(Frame(view=waiting), 80, 24)
    assert troubles(VIEW) == []
    assert troubles(replace(waiting, run=replace(waiting.run, state=RunState.KILLED))) == []


def test_a_flow_that_restarts_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    rest = Rest(attempt=3, attempts=10, reason="It broke.", again_ms=BATCH.ended_ms + 7_000)
    view = RunView(run=replace(RUN, resting={"raw": rest}), flows=(FLOW,))
    plain = PlainScreen()
    for _ in range(3):
        plain.show(view)
    said = "The flow raw failed: It broke. It restarts in 4 s (attempt 3 of 10)."
    assert capsys.readouterr().err.splitlines() == [said]
    assert said in lines_of(Frame(view=view), 80, 24)
    late = replace(rest, again_ms=BATCH.ended_ms)
    assert troubles(replace(view, run=replace(RUN, resting={"raw": late}))) == [
        "The flow raw failed: It broke. It restarts now (attempt 3 of 10)."
    ]


def test_a_failure_is_reported_whole_with_file_and_line() -> None:
    said = (
        "ValueError: sensor 7 is too hot (/srv/iot/anomalies.py:46, in check). The record is in "
        "batch 12, which reads offsets 600 to 649 of partition 0 of topic readings."
    )
    failed = replace(FLOW, state=FlowState.FAILED, failure=said)
    error = f"The flow averages failed: {said}"
    run = replace(RUN, state=RunState.FAILED, error=error, failures={"averages": said})
    shown = lines_of(Frame(view=RunView(run=run, flows=(failed,))), 80, 24)
    assert " ".join(each.strip() for each in shown).count(error) == 1
    # At the end of a run the command says it, below the flows.
    live = LiveScreen()
    live.show(RunView(run=replace(RUN, ended_ms=run.ended_ms), flows=(failed,)))
    assert live.failed is not None
    assert lines_of(live.failed, 80) == [*shown[:3], *shown[-2:]]
    assert shown[2].split()[:2] == ["averages", "failed"]
    lost = replace(run, error="Spark's process has died.")
    assert troubles(RunView(run=lost, flows=(failed,))) == ["Spark's process has died.", error]


def test_notes_that_are_too_long_say_so() -> None:
    failed = [
        replace(FLOW, name=f"f{n}", state=FlowState.FAILED, failure="no " * 90) for n in "123"
    ]
    shown = lines_of(Frame(view=RunView(run=RUN, flows=tuple(failed))), 80, 12)
    assert len(shown) == 12
    assert shown[-1].endswith("more lines: `penstock pipeline status` shows them")


def test_broken_rules_are_shown_rule_by_rule() -> None:
    def counting(name: str, **rules: int) -> FlowView:
        return replace(
            FLOW, name=name, last=replace(BATCH, total=Totals(rules={"readings": rules}))
        )

    view = RunView(
        run=RUN,
        flows=(
            counting("table", complete=2, possible=0),
            counting("averages", complete=1_003, possible=9),
        ),
    )
    shown = lines_of(Frame(view=view), 80, 24)
    assert shown[-3:] == [
        "Broken rules, by rows:",
        "  readings.complete  1,003 in averages, 2 in table",
        "  readings.possible  9 in averages",
    ]
    named = replace(view, flows=(counting("table", **{"r" * 99: 7}),))
    for height in (24, None):
        assert max(map(len, lines_of(Frame(view=named), 80, height))) <= 80
        assert lines_of(Frame(view=named), 80, height)[-1].endswith("rrr  7 in table")
    many = replace(view, flows=tuple(counting(f"a_long_name_{n:02}", cold=n) for n in range(1, 13)))
    cut = lines_of(Frame(view=many), 80, 24)[-1]
    assert (len(cut), cut[-3:]) == (80, "...")
    whole = lines_of(Frame(view=many), 80)
    assert " ".join(each.strip() for each in whole).count("in a_long_name_") == 12


def test_the_summary_of_a_run_names_each_rule() -> None:
    summary = FlowSummary(
        name="raw",
        sink="parquet lake/raw",
        batches=3,
        rows_in=1_000,
        rows_out=989,
        dead_letters=0,
        broken_rules=11,
        rules={"readings": {"possible": 10, "complete": 0}, "averages": {"cold": 1}},
        restarts=1,
    )
    assert run_command._flow_line(summary) == (
        "raw: 1,000 rows in, 989 rows to parquet lake/raw, 3 batches, 10 rows broke the rule "
        "readings.possible, 1 row broke the rule averages.cold, restarted 1 time."
    )


def test_a_batch_as_a_line() -> None:
    assert line("averages", BATCH) == (
        "averages: batch 12, 1,000 rows in, 24 out, 5,000/s, 310 ms, lag 4,003, "
        "state 24 rows 8.5 kB, watermark 2026-11-16T05:53:11.601Z, dead letters 1, "
        "2 broke readings.plausible"
    )
    plain = replace(
        BATCH,
        batch=0,
        rows_out=None,
        rows_in=5,
        rows_in_per_second=0.0,
        batch_ms=20_000,
        lag={},
        state_rows=0,
        watermark=None,
        dead_letters=0,
        rules={"readings": {"plausible": 0}},
    )
    assert line("raw", plain) == "raw: batch 0, 5 rows in, 0/s, 20.0 s"


def test_sizes_and_times_are_short() -> None:
    assert [size(count) for count in (0, 999, 1_000, 2_500_000, 10**16)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "2.5 MB",
        "10000.0 TB",
    ]
    assert [duration(ms) for ms in (0, 9_999, 10_000)] == ["0 ms", "9999 ms", "10.0 s"]
    ages = [age(1000 * seconds) for seconds in (-1, 119, 120, 7_199, 7_200, 172_800)]
    assert ages == ["0 s", "119 s", "2 min", "119 min", "2 h", "2 d"]
    assert clock(None) == ""
    sinks = ("delta /lake/averages", "delta /averages", "topic a", "console")
    assert [short_sink(sink) for sink in sinks] == [
        "delta .../averages",
        "delta /averages",
        "topic a",
        "console",
    ]


@pytest.mark.parametrize(
    ("host", "opened"),
    [
        ("localhost", "localhost"),
        ("127.0.1.1", "127.0.1.1"),
        ("[::1]", "[::1]"),
        ("0.0.0.0", "127.0.0.1"),
        ("[::]", "127.0.0.1"),
    ],
)
def test_an_address_is_shown_only_where_it_can_be_opened(host: str, opened: str) -> None:
    run = replace(RUN, host=socket.gethostname(), ui=f"http://{host}:4041")
    assert web_pages(run) == f"http://{opened}:4041"
    assert web_pages(replace(run, host="another-machine")) is None
    named = replace(run, host="another-machine", ui="http://driver.example.org:4041")
    assert web_pages(named) == "http://driver.example.org:4041"
    assert web_pages(replace(run, ui=None)) is None


def test_the_headline_says_where_and_how_long() -> None:
    here = replace(RUN, host=socket.gethostname())
    assert headline(here) == "iot: running on local[2], 65 s, http://localhost:4040"
    assert headline(replace(RUN, state=RunState.ENDED)) == "iot: ended on local[2], 65 s"
    assert headline(replace(RUN, state=RunState.KILLED)) == "iot: killed on local[2]"


def test_the_live_screen_shows_what_is_done_and_what_flows_print() -> None:
    live = LiveScreen()
    live.phase("Spark is starting.")
    assert str(live.draw(24)) == "Spark is starting."
    assert live.failed is None
    live.show(VIEW)
    live.phase("Spark is ending.")
    live.printed.write("show, batch 1: 2 rows\nnumber\n------\n1\n2\nnot yet a li")
    frame = live.draw(10)
    assert isinstance(frame, Frame)
    assert frame.height == 10
    shown = lines_of(frame, 80, 10)
    assert shown[3] == "Spark is ending."
    assert shown[-3:] == ["------", "1", "2"]
    assert lines_of(frame, 80, 6)[-1] == "  readings.plausible  9 in averages"


def test_what_flows_print_comes_onto_the_terminal_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("TERM", "xterm")

    def fail() -> None:
        with screen(quiet=False) as watcher:
            watcher.show(VIEW)
            print("a row")
            assert out.getvalue() == ""
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert out.getvalue() == "a row\n"
    # The run as it was when it failed stays, after the terminal has its old content again.
    assert "averages" in err.getvalue().split("\x1b[?1049l")[1]


@pytest.mark.parametrize(("term", "kind"), [("xterm", LiveScreen), ("dumb", PlainScreen)])
def test_only_a_terminal_that_can_be_drawn_on_is(
    term: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", term)
    with screen(quiet=False) as watcher:
        assert type(watcher) is kind
    with screen(quiet=True) as watcher:
        assert type(watcher) is Nobody
        leave(watcher)
    # What makes rich draw in colours on a pipe does not make it a terminal.
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setenv("FORCE_COLOR", "1")
    with screen(quiet=False) as watcher:
        assert type(watcher) is PlainScreen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_are_not_too_many_and_leave_stdout_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(screen_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    plain = PlainScreen()
    for _ in range(3):
        plain.finished("averages", BATCH)
        plain.finished("raw", BATCH)
        plain.show(RunView(run=replace(RUN, state=RunState.STOPPING), flows=()))
    now_s += screen_module.LINE_EVERY_S
    plain.finished("raw", BATCH)
    captured = capsys.readouterr()
    assert captured.out == ""
    begins = [each.replace(":", " ").split(" ")[0] for each in captured.err.splitlines()]
    assert begins == ["averages", "raw", "Stopping", "raw"]
