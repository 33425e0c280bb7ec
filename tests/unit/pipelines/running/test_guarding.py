"""Which checkpoints a flow may go on from; each refusal names the place and the way out."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.pipelines.running.guarding import (
    FlowRecord,
    allow_new_start,
    check_flow,
    keep_record,
    read_record,
)
from penstock.pipelines.running.progress import BatchProgress, ProgressLog
from penstock.pipelines.running.refusals import RunRefused
from penstock.pipelines.running.storage import FlowFolder
from tests.unit.pipelines.running.rig import QUERY, ListSink, make_checkpoint

FLOW = FlowRecord(
    pipeline="iot",
    pipeline_id="abc",
    flow="averages",
    sources=("topic readings",),
    state=("windows of 10 seconds",),
    sink="delta /lake/averages",
)
RESET = "`penstock pipeline reset iot.yaml --flow averages` makes it start from the beginning."


@pytest.fixture
def folder(tmp_path: Path) -> FlowFolder:
    return FlowFolder(tmp_path / "averages")


def check(folder: FlowFolder, flow: FlowRecord = FLOW, sink: ListSink | None = None) -> FlowRecord:
    return check_flow(folder, flow, sink or ListSink(), file="iot.yaml")


def refusal(folder: FlowFolder, flow: FlowRecord = FLOW, sink: ListSink | None = None) -> str:
    with pytest.raises(RunRefused) as refused:
        check(folder, flow, sink)
    said = str(refused.value)
    assert str(folder.path) in said
    assert said.endswith(".")
    return said


def has_run(folder: FlowFolder, last: int = 3) -> None:
    """The flow has run before and has ended after a batch."""
    make_checkpoint(folder.checkpoint, planned=last, committed=last)
    keep_record(folder, replace(FLOW, query=QUERY))
    ProgressLog(folder.progress).append(
        BatchProgress(at_ms=0, query=QUERY, batch=last, rows_in=1, batch_ms=1)
    )


def test_a_first_start_and_every_further_one_are_let_through(folder: FlowFolder) -> None:
    first = check(folder)
    assert first == FLOW
    keep_record(folder, first)
    # A crash before Spark made its checkpoint, and one before its id was noted.
    assert check(folder) == FLOW
    make_checkpoint(folder.checkpoint)
    assert check(folder) == replace(FLOW, query=QUERY)
    has_run(folder)
    assert check(folder, sink=ListSink({QUERY: 3})) == replace(FLOW, query=QUERY)
    assert read_record(folder) == replace(FLOW, query=QUERY)


def test_a_lost_checkpoint_is_refused(folder: FlowFolder) -> None:
    has_run(folder)
    shutil.rmtree(folder.checkpoint)
    said = refusal(folder)
    assert said.startswith(f"The checkpoint {folder.checkpoint} is lost")
    assert said.endswith(RESET)


def test_a_lost_storage_is_seen_by_the_rows_in_the_sink(folder: FlowFolder) -> None:
    said = refusal(folder, sink=ListSink({QUERY: 3}))
    assert "is lost: delta /lake/averages holds rows that the flow averages has written" in said
    assert said.endswith(RESET)


def test_a_reset_allows_one_new_start_and_no_more(folder: FlowFolder) -> None:
    sink = ListSink({QUERY: 3})
    allow_new_start(folder)
    again = check(folder, sink=sink)
    assert again.earlier == (QUERY,)
    keep_record(folder, again)
    # It crashed before it had a checkpoint: what is in the sink is known and no reason to refuse.
    assert check(folder, sink=sink).earlier == (QUERY,)
    sink.last["another"] = 0
    assert "is lost" in refusal(folder, sink=sink)


def test_a_checkpoint_that_nobody_knows_is_refused(folder: FlowFolder) -> None:
    make_checkpoint(folder.checkpoint)
    said = refusal(folder)
    assert "was not made by the flow averages of the pipeline iot" in said
    assert said.endswith(RESET)


def test_a_checkpoint_of_another_query_is_refused(folder: FlowFolder) -> None:
    has_run(folder)
    make_checkpoint(folder.checkpoint, query="foreign", planned=3, committed=3)
    assert (
        f"belongs to another query (foreign), not to the one of the flow averages ({QUERY})"
        in refusal(folder)
    )


@pytest.mark.parametrize(
    ("change", "whose"),
    [
        ({"pipeline_id": "xyz"}, "the flow averages of another pipeline iot"),
        ({"pipeline_id": "xyz", "pipeline": "orders"}, "the flow averages of the pipeline orders"),
        ({"flow": "raw"}, "the flow raw of this pipeline"),
    ],
)
def test_a_folder_of_another_flow_is_refused(
    folder: FlowFolder, change: dict[str, str], whose: str
) -> None:
    has_run(folder)
    keep_record(folder, replace(FLOW, query=QUERY, **change))
    assert f"belongs to {whose}" in refusal(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"sources": ("topic other",)},
            "it read topic readings, and now reads topic other",
        ),
        (
            {"state": ("windows of 1 minute",)},
            "it kept windows of 10 seconds, and would now keep windows of 1 minute",
        ),
        ({"state": ()}, "and would now keep nothing"),
        ({"mode": "update"}, "its mode was append, and is now update"),
    ],
)
def test_a_changed_flow_is_refused(
    folder: FlowFolder, change: dict[str, object], said: str
) -> None:
    has_run(folder)
    sentence = refusal(folder, replace(FLOW, **change))  # type: ignore[arg-type]
    assert "The flow averages has changed" in sentence
    assert said in sentence
    assert sentence.endswith(RESET)


def test_another_sink_fits(folder: FlowFolder) -> None:
    has_run(folder)
    assert check(folder, replace(FLOW, sink="console")).query == QUERY


def test_an_older_checkpoint_is_refused(folder: FlowFolder) -> None:
    has_run(folder, last=9)
    shutil.rmtree(folder.checkpoint)
    make_checkpoint(folder.checkpoint, planned=4, committed=4)
    assert "is older than the flow averages, which had reached batch 9" in refusal(folder)
    shutil.rmtree(folder.checkpoint / "offsets")
    assert "is older" in refusal(folder)
