"""What people see of a pipeline: the answers of status, stop and reset, and the end of a run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.pipelines.running.progress import ProgressLog
from penstock.pipelines.running.run_record import RunBook, RunState, new_run, sole_run
from penstock.pipelines.running.storage import Storage, claim
from tests.unit.cli.pipeline_views import BATCH, PIPELINE
from tests.unit.pipelines.running.rig import make_checkpoint


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """Of a pipeline that has run and ended."""
    found = Storage(tmp_path / "iot")
    claim(found, "iot")
    with sole_run(found):
        book = RunBook(found, new_run(PIPELINE, once=False))
        make_checkpoint(found.flow("averages").checkpoint, query=BATCH.query)
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
    rules = outcome.stdout.split("\n\n")[1].splitlines()
    assert [each.split() for each in rules] == [
        ["DATASET", "BROKEN", "RULE", "FLOW", "ROWS"],
        ["readings", "plausible", "averages", "9"],
    ]
    content = json.loads(penstock("status", "--storage", str(storage.path), "--json").stdout)
    assert content["run"]["state"] == "ended"
    flow = content["flows"]["averages"]
    assert (flow["sink"], flow["state"]) == ("console", "stopped")
    assert (flow["restart"], flow["failure"]) == (None, None)
    assert flow["broken_rules"] == [{"dataset": "readings", "rule": "plausible", "rows": 9}]
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
