"""What people see of a pipeline: the table, the lines, the answers of status, stop and reset."""

import io
import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from penstock.cli.main import cli
from penstock.cli.pipeline import screen as screen_module
from penstock.cli.pipeline.screen import LiveScreen, PlainScreen, flows_table, headline, web_pages
from penstock.cli.pipeline.screen_cells import (
    COLUMNS,
    cells,
    clock,
    duration,
    line,
    shortened,
    size,
)
from penstock.pipelines.running.guarding import FlowRecord, keep_record
from penstock.pipelines.running.progress import BatchProgress, ProgressLog, Totals
from penstock.pipelines.running.run_record import Rest, Run, RunBook, RunState, new_run, sole_run
from penstock.pipelines.running.storage import Storage, claim
from penstock.pipelines.running.watching import FlowState, FlowView, RunView
from penstock.pipelines.specification.model import ConsoleSink, Flow, Pipeline
from penstock.pipelines.specification.problems import Place

BATCH = BatchProgress(
    at_ms=1,
    query="q",
    batch=12,
    rows_in=1_000,
    rows_out=24,
    batch_ms=310,
    rows_in_per_second=5_000.4,
    lag={"readings": {"0": 3, "1": 4_000}},
    state_rows=24,
    state_bytes=8_544,
    watermark="2026-11-16T05:53:11.601Z",
    rules={"readings": {"plausible": 2}},
    dead_letters=1,
    total=Totals(rows_in=20_000, rows_out=24, dead_letters=7, rules={"readings": {"plausible": 9}}),
)
FLOW = FlowView(name="averages", sink="delta /lake", state=FlowState.RUNNING, last=BATCH)
PLACE = Place("iot.yaml")
PIPELINE = Pipeline(
    name="iot",
    file="iot.yaml",
    storage="",
    parameters={},
    sources={},
    steps={},
    flows={
        "averages": Flow(
            name="averages", input="readings", sink=ConsoleSink(place=PLACE), place=PLACE
        )
    },
    place=PLACE,
)
RUN = Run(
    pipeline="iot",
    file="iot.yaml",
    pid=1,
    host="h",
    started_ms=1_000,
    ended_ms=66_000,
    state=RunState.RUNNING,
    master="local[2]",
    ui="http://localhost:4040",
)


def test_a_flow_as_a_row() -> None:
    assert dict(zip(COLUMNS, cells(FLOW), strict=True)) == {
        "flow": "averages",
        "to": "delta /lake",
        "state": "running",
        "batch": "12",
        "rows": "20,000",
        "rows/s": "5,000",
        "lag": "4,003",
        "batch time": "310 ms",
        "state rows": "24",
        "state size": "8.5 kB",
        "watermark": "11-16 05:53:11",
        "dead letters": "7",
        "broken rules": "9",
    }
    waiting = cells(replace(FLOW, last=None))
    assert len(waiting) == len(COLUMNS)
    assert set(waiting[3:]) == {""}


def test_what_a_run_waits_for_is_shown_on_each_kind_of_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    silent = {"x:1": "No broker answers at x:1: connection refused."}
    calm = RunView(run=RUN, flows=(FLOW,))
    waiting = replace(calm, run=replace(RUN, silent=silent))
    plain = PlainScreen()
    for view in (calm, waiting, waiting, calm, calm):
        plain.show(view)
    said = "No broker answers at x:1: connection refused. Waiting for it."
    assert capsys.readouterr().err.splitlines() == [said, "A broker answers at x:1 again."]
    assert flows_table(waiting).caption == said
    assert flows_table(calm).caption is None
    killed = replace(waiting, run=replace(waiting.run, state=RunState.KILLED))
    assert flows_table(killed).caption is None


def test_a_flow_that_is_started_again_is_reported_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.pipeline.screen_cells.now_ms", lambda: 1_000)
    rest = Rest(attempt=3, attempts=10, reason="It broke.", again_ms=5_000)
    view = RunView(run=replace(RUN, resting={"raw": rest}), flows=(FLOW,))
    plain = PlainScreen()
    for _ in range(3):
        plain.show(view)
    said = "The flow raw failed: It broke. It restarts in 4 s (3 of 10)."
    assert capsys.readouterr().err.splitlines() == [said]
    assert flows_table(view).caption == said


def test_a_batch_as_a_line() -> None:
    assert line("averages", BATCH) == (
        "averages: batch 12, 1,000 rows in, 24 out, 5,000/s, 310 ms, lag 4,003, "
        "state 24 rows 8.5 kB, watermark 2026-11-16T05:53:11.601Z, dead letters 1, broken rules 2"
    )
    plain = BatchProgress(at_ms=1, query="q", batch=0, rows_in=5, batch_ms=20_000)
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
    assert clock(None) == ""
    sinks = ("delta /lake/averages", "delta /averages", "topic a", "console")
    assert [shortened(sink) for sink in sinks] == [
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


def test_the_live_table_leaves_out_empty_columns() -> None:
    screen = LiveScreen()
    screen.phase("Spark is starting.")
    assert "Spark is starting." in drawn(screen.drawn)
    quiet = replace(FLOW, last=replace(BATCH, state_rows=0, state_bytes=0, watermark=None))
    screen.show(RunView(run=RUN, flows=(quiet,)))
    text = drawn(screen.drawn)
    assert "averages" in text
    assert "4,003" in text
    assert "watermark" not in text
    assert "watermark" in drawn(flows_table(RunView(run=RUN, flows=(FLOW,))))


def drawn(renderable: object) -> str:
    sink = io.StringIO()
    Console(file=sink, width=200, markup=False).print(renderable)
    return sink.getvalue()


def test_plain_lines_are_not_too_many_and_leave_stdout_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(screen_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    screen = PlainScreen()
    for _ in range(3):
        screen.finished("averages", BATCH)
        screen.finished("raw", BATCH)
        screen.show(RunView(run=replace(RUN, state=RunState.STOPPING), flows=()))
    now_s += screen_module.LINE_EVERY_S
    screen.finished("raw", BATCH)
    captured = capsys.readouterr()
    assert captured.out == ""
    begins = [each.replace(":", " ").split(" ")[0] for each in captured.err.splitlines()]
    assert begins == ["averages", "raw", "Stopping", "raw"]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """Of a pipeline that has run and ended."""
    found = Storage(tmp_path / "iot")
    claim(found, "iot")
    with sole_run(found):
        book = RunBook(found, new_run(PIPELINE, once=False))
        record = FlowRecord(pipeline="iot", pipeline_id="a", flow="averages", sink="delta /lake")
        keep_record(found.flow("averages"), record)
        ProgressLog(found.flow("averages").progress).append(BATCH)
        book.ended()
    return found


def penstock(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["pipeline", *arguments])


def test_status_as_text_and_as_json(storage: Storage) -> None:
    outcome = penstock("status", "--storage", str(storage.path))
    assert outcome.stdout.startswith("iot: ended")
    assert "averages" in outcome.stdout
    assert "4,003" in outcome.stdout
    content = json.loads(penstock("status", "--storage", str(storage.path), "--json").stdout)
    assert content["run"]["state"] == "ended"
    flow = content["flows"]["averages"]
    assert (flow["sink"], flow["state"]) == ("delta /lake", "ended")
    assert flow["last"]["lag"] == {"readings": {"0": 3, "1": 4_000}}
    assert flow["last"]["lag_total"] == 4_003


def test_what_is_not_there_is_told(storage: Storage, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    outcome = penstock("status", "--storage", str(nowhere))
    assert str(outcome.exception) == f"No pipeline has run in {nowhere} yet."
    assert "either the pipeline's FILE or its --storage" in penstock("status").stderr
    outcome = penstock("stop", "--storage", str(storage.path))
    assert str(outcome.exception) == f"The pipeline in {storage.path} is not running."


def test_stop_asks_by_a_file_and_says_when_it_takes_too_long(storage: Storage) -> None:
    with sole_run(storage):
        RunBook(storage, new_run(PIPELINE, once=False)).state(RunState.RUNNING)
        outcome = penstock("stop", "--storage", str(storage.path), "--timeout", "0")
        assert outcome.stdout == "The pipeline was asked to stop.\n"
        assert storage.stop.exists()
        outcome = penstock("stop", "--storage", str(storage.path), "--timeout", "0.01")
        assert "still runs after 0.01 s" in str(outcome.exception)


SPECIFICATION = """\
pipeline: iot
sources:
  readings: {topic: readings}
flows:
  raw: {from: readings, to: {parquet: lake/raw}}
  show: {from: readings, to: {console: 5}}
"""


def test_reset_asks_and_tells_what_it_will_do(tmp_path: Path) -> None:
    path = tmp_path / "iot.yaml"
    path.write_text(SPECIFICATION)
    outcome = CliRunner().invoke(cli, ["pipeline", "reset", str(path)], input="n\n")
    assert outcome.exit_code == 1
    assert f"parquet {tmp_path}/lake/raw" in outcome.stdout
    assert "keep their rows" in outcome.stdout
    assert not (tmp_path / ".penstock").exists()
    outcome = penstock("reset", str(path), "--flow", "show", "--yes")
    assert outcome.stdout == "The next run of iot starts from the beginning: show.\n"
    flows = tmp_path / ".penstock" / "pipelines" / "iot" / "flows"
    assert [each.name for each in flows.iterdir()] == ["show"]
    assert "no flow shaw; did you mean show?" in str(
        penstock("reset", str(path), "--flow", "shaw", "--yes").exception
    )


# As `penstock pipeline run`, with a run that shows rows instead of one that needs Spark.
SHOWS_ROWS = """
import sys
from penstock.cli.main import main
from penstock.pipelines.running import runner
from penstock.pipelines.running.refusals import FlowFailed
from penstock.pipelines.sinks.console_sink import print_at_once
from penstock.pipelines.sinks.sink import SinkRefused

def run_pipeline(pipeline, **given):
    try:
        print_at_once("a batch")
    except SinkRefused as refused:
        raise FlowFailed("show", str(refused))

runner.run_pipeline = run_pipeline
sys.exit(main())
"""


def test_rows_that_nobody_reads_any_more_end_a_run_with_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "iot.yaml"
    path.write_text(SPECIFICATION)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", SHOWS_ROWS, "pipeline", "run", str(path)]
    with open(writing, "wb") as stdout:
        outcome = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
    said = "penstock: The flow show failed: The reader of the console's rows has gone.\n"
    assert (outcome.stderr, outcome.returncode) == (said, 1)
