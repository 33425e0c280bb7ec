"""A pipeline's folder: whose it is, who runs in it, what a reset leaves."""

import fcntl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.pipelines.running import run_record
from penstock.pipelines.running.guarding import FlowRecord, keep_record
from penstock.pipelines.running.looking import is_running, look
from penstock.pipelines.running.refusals import RunRefused
from penstock.pipelines.running.resetting import chosen_flows, reset_pipeline, tables_of
from penstock.pipelines.running.run_record import (
    RunBook,
    RunState,
    last_run,
    new_run,
    sole_run,
)
from penstock.pipelines.running.storage import Storage, claim, read_json
from penstock.pipelines.running.watching import FlowState
from penstock.pipelines.specification.model import Pipeline
from tests.unit.pipelines.running.rig import (
    flow,
    make_checkpoint,
    pipeline,
    to_console,
    to_table,
    topic_source,
)

HOLD = """
import sys
import threading
from pathlib import Path
from penstock.pipelines.running.run_record import RunBook, RunState, new_run, sole_run
from penstock.pipelines.running.storage import Storage
from tests.unit.pipelines.running.rig import pipeline
storage = Storage(Path(sys.argv[1]))
PIPELINE = pipeline(storage.path, [], [])
with sole_run(storage):
    RunBook(storage, new_run(PIPELINE, once=False)).state(RunState.RUNNING)
    print("holds", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "iot")


@pytest.fixture
def iot(storage: Storage) -> Pipeline:
    flows = [flow("raw", "readings", to_table("/lake/raw")), flow("show", "readings", to_console())]
    return pipeline(storage.path, [topic_source("readings", "readings")], flows)


def test_a_folder_belongs_to_one_pipeline(storage: Storage) -> None:
    first = claim(storage, "iot")
    assert claim(storage, "iot") == first
    with pytest.raises(RunRefused, match=f"{storage.path} belongs to the pipeline iot"):
        claim(storage, "orders")


def test_a_damaged_file_is_named(storage: Storage) -> None:
    storage.path.mkdir()
    for content in (b"{", b"[]", b"\xff"):
        storage.identity.write_bytes(content)
        with pytest.raises(RunRefused, match=f"{storage.identity} is damaged"):
            read_json(storage.identity)


def test_one_run_at_a_time_and_a_killed_one_is_seen(
    storage: Storage, iot: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_record, "LOCK_TIMEOUT_S", 0.1)
    claim(storage, "iot")
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(storage.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "holds\n"
        assert is_running(storage)
        said = f"{storage.path} is in use by process {other.pid} on .*`penstock pipeline stop`"
        with pytest.raises(RunRefused, match=said), sole_run(storage):
            pass
        with pytest.raises(RunRefused, match="is in use"):
            reset_pipeline(iot, ["raw"], with_tables=False)
    finally:
        other.kill()
        other.communicate()
    run = last_run(storage)
    assert run is not None
    assert (run.state, run.pid) == (RunState.KILLED, other.pid)
    assert not is_running(storage)
    with sole_run(storage):
        pass


def test_a_run_is_seen_from_outside(storage: Storage, iot: Pipeline) -> None:
    with pytest.raises(RunRefused, match="has not run yet"):
        look(storage)
    with sole_run(storage):
        book = RunBook(storage, new_run(iot, once=True))
        book.started(master="local[2]", application="local-1", ui=None)
        book.state(RunState.RUNNING)
        view = look(storage)
        assert view.run == book.run
        assert [(each.name, each.sink, each.state) for each in view.flows] == [
            ("raw", "parquet /lake/raw", FlowState.STARTING),
            ("show", "console", FlowState.STARTING),
        ]
        book.ended("The flow raw failed: no.", failed_flow="raw")
    view = look(storage)
    assert (view.run.state, view.run.error) == (RunState.FAILED, "The flow raw failed: no.")
    assert view.flows[0].state is FlowState.FAILED


def test_a_reset_forgets_only_what_it_was_told_to(storage: Storage, iot: Pipeline) -> None:
    claim(storage, "iot")
    for name in iot.flows:
        make_checkpoint(storage.flow(name).checkpoint)
        record = FlowRecord(pipeline="iot", pipeline_id="a", flow=name)
        keep_record(storage.flow(name), record)
    reset_pipeline(iot, ["show"], with_tables=False)
    assert sorted(each.name for each in storage.flow("show").path.iterdir()) == ["reset.json"]
    assert storage.flow("raw").checkpoint.exists()
    assert storage.flow("raw").record.exists()


def test_a_table_goes_only_with_all_flows_that_write_it(tmp_path: Path) -> None:
    storage, table = Storage(tmp_path / "iot"), tmp_path / "both"
    flows = [flow(name, "readings", to_table(str(table))) for name in ("raw", "late")]
    iot = pipeline(storage.path, [topic_source("readings", "readings")], flows)
    claim(storage, "iot")
    (table / "data").mkdir(parents=True)
    make_checkpoint(storage.flow("raw").checkpoint)
    with pytest.raises(RunRefused, match=r"both also holds rows of the flow late, which would be"):
        reset_pipeline(iot, ["raw"], with_tables=True)
    assert storage.flow("raw").checkpoint.exists()
    reset_pipeline(iot, ["raw", "late"], with_tables=True)
    assert not (table / "data").exists()


def test_flows_are_chosen_by_name(iot: Pipeline) -> None:
    assert chosen_flows(iot, ()) == ["raw", "show"]
    assert chosen_flows(iot, ("show", "raw")) == ["raw", "show"]
    assert tables_of(iot, ["raw", "show"]) == ["parquet /lake/raw"]
    with pytest.raises(RunRefused, match=r"no flow rav; did you mean raw\?"):
        chosen_flows(iot, ("rav",))


def test_a_run_waits_for_the_end_of_a_look_at_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However late the end of the look comes on a busy machine.
    monkeypatch.setattr(run_record, "LOCK_TIMEOUT_S", 60.0)
    storage = Storage(tmp_path)
    with sole_run(storage):
        pass
    with storage.lock.open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        end_of_look = threading.Timer(0.1, fcntl.flock, (looking, fcntl.LOCK_UN))
        end_of_look.start()
        with sole_run(storage):
            end_of_look.join()


def test_others_who_look_at_the_lock_are_no_run(storage: Storage, iot: Pipeline) -> None:
    with sole_run(storage):
        RunBook(storage, new_run(iot, once=False)).state(RunState.RUNNING)
        assert is_running(storage)
    with storage.lock.open("rb") as looking:
        # As `is_running` of another process does, in the same moment.
        fcntl.flock(looking, fcntl.LOCK_SH)
        run = last_run(storage)
    assert run is not None
    assert run.state is RunState.KILLED
