"""What is kept of a batch: made of Spark's progress, read again, bounded on disk."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.pipelines.running.progress import (
    BatchProgress,
    ProgressLog,
    Totals,
    batch_progress,
    from_line,
    to_line,
    with_lag_from,
)
from penstock.pipelines.sinks.sink import Written

SPARK: dict[str, Any] = {
    "id": "q",
    "runId": "r",
    "name": "iot.averages",
    "timestamp": "2026-11-16T05:53:32.506Z",
    "batchId": 1,
    "batchDuration": 1703,
    "numInputRows": 29,
    "inputRowsPerSecond": 2.4,
    "processedRowsPerSecond": 17.0,
    "durationMs": {"addBatch": 1381, "walCommit": 70},
    "eventTime": {"max": "2026-11-16T05:53:12.601Z", "watermark": "2026-11-16T05:53:11.601Z"},
    "stateOperators": [
        {"numRowsTotal": 2, "memoryUsedBytes": 8544, "numRowsDroppedByWatermark": 1},
        {"numRowsTotal": 3, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 0},
    ],
    "sources": [
        {
            "startOffset": None,
            "endOffset": {"@start": {"readings": {"0": 0}}, "readings": {"0": 30, "1": 28}},
            "latestOffset": {"readings": {"0": 52, "1": 28, "2": 4}},
        },
        {"endOffset": {"logOffset": 3}, "latestOffset": None},
    ],
    "observedMetrics": {
        "rules.readings": {"plausible": 4, "known": 0},
        "decoding.readings": {"records": 31, "undecodable": 2},
        "mine": {"a": 1},
    },
}


def test_sparks_progress_becomes_ours() -> None:
    batch = batch_progress(SPARK, Written(rows=7, files=2, size=99))
    assert batch == BatchProgress(
        at_ms=1794808412506,
        query="q",
        batch=1,
        rows_in=29,
        rows_out=7,
        files=2,
        size=99,
        rows_in_per_second=2.4,
        rows_done_per_second=17.0,
        batch_ms=1703,
        durations_ms={"addBatch": 1381, "walCommit": 70},
        lag={"readings": {"0": 22, "1": 0, "2": 4}},
        ends={"readings": {"0": 30, "1": 28}},
        state_rows=5,
        state_bytes=9544,
        late_rows=1,
        watermark="2026-11-16T05:53:11.601Z",
        rules={"readings": {"plausible": 4, "known": 0}},
        dead_letters=2,
    )
    assert batch.lag_total == 26
    assert batch.broken_rules == 4
    assert from_line(to_line(batch)) == batch


def test_a_batch_of_which_spark_knows_little() -> None:
    sparse = {"id": "q", "timestamp": "2026-11-16T05:53:32Z", "batchId": 0, "eventTime": {}}
    batch = batch_progress(sparse | {"inputRowsPerSecond": "NaN"}, None)
    assert (batch.rows_out, batch.watermark, batch.rate, batch.lag_total) == (None, None, 0.0, 0)
    early = {"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}
    assert batch_progress(sparse | early, None).watermark is None


def test_a_batch_that_was_planned_before_goes_by_the_lag_before_it() -> None:
    first = batch_progress(SPARK, None)
    known = {"endOffset": {"readings": {"0": 50, "1": 28}}, "latestOffset": None}
    again = batch_progress(SPARK | {"sources": [known]}, None)
    assert again.lag == {}
    assert with_lag_from(again, None) == again
    assert with_lag_from(again, first).lag == {"readings": {"0": 2, "1": 0, "2": 4}}
    assert with_lag_from(first, again) == first


def test_totals_add_up() -> None:
    batch = batch_progress(SPARK, Written(rows=7))
    total = Totals().plus(batch).plus(replace(batch, rows_out=None))
    assert (total.rows_in, total.rows_out, total.dead_letters, total.late_rows) == (58, 7, 4, 2)
    assert total.rules == {"readings": {"plausible": 8, "known": 0}}
    assert total.broken_rules == 8


def test_the_log_is_bounded_and_gives_the_last_ones(tmp_path: Path) -> None:
    log = ProgressLog(tmp_path / "flow" / "progress.jsonl", size_max=2_000)
    assert log.last() == []
    batch = batch_progress(SPARK, None)
    for number in range(50):
        log.append(replace(batch, batch=number))
    assert [each.batch for each in log.last(4)] == [46, 47, 48, 49]
    files = sorted(tmp_path.glob("flow/*"))
    assert [file.name for file in files] == ["progress.1.jsonl", "progress.jsonl"]
    assert sum(file.stat().st_size for file in files) < 6_000
    log.remove()
    assert log.last() == []


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    log = ProgressLog(path)
    batch = batch_progress(SPARK, None)
    log.append(batch)
    with path.open("a") as file:
        file.write('{"at_ms":17')
    assert log.last() == [batch]


def test_a_look_that_found_nothing_is_not_a_batch(tmp_path: Path) -> None:
    """Spark tells of it under the number of the batch that is yet to come.

    Taken for a batch, it would make the checkpoint look older than the flow. Logs of earlier
    versions hold such lines.
    """
    log = ProgressLog(tmp_path / "progress.jsonl")
    batch = batch_progress(SPARK, None)
    log.append(batch)
    log.append(replace(batch, batch=2, durations_ms={"latestOffset": 0, "triggerExecution": 11}))
    assert log.last() == [batch]
