"""Proves that a running pipeline counts its batches and serves the counts on its own port."""

import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.model.endpoint import Endpoint
from penstock.pipelines.running.metrics import MetricsWatcher, metrics_server
from penstock.pipelines.running.progress import BatchProgress
from penstock.pipelines.running.refusals import RunRefused
from penstock.pipelines.running.run_record import Phase, Run, RunState
from penstock.pipelines.running.watching import Nobody, run_view

RUN = Run(
    pipeline="iot",
    file="iot.yaml",
    pid=1,
    host="here",
    started_ms=0,
    state=RunState.RUNNING,
    flows=("clean", "lazy"),
    phases={"clean": Phase.RUNNING, "lazy": Phase.IDLE},
)


def batch(rows: int, dead_letters: int) -> BatchProgress:
    return BatchProgress(
        at_ms=1_000,
        query="q",
        batch=0,
        rows_in=rows,
        rows_out=rows - dead_letters,
        rows_in_per_second=5.0,
        batch_ms=500,
        lag={"readings": {"0": 3, "1": 4}},
        dead_letters=dead_letters,
        rules={"clean": {"positive": 2}},
    )


def test_batches_are_counted_and_served() -> None:
    watcher = MetricsWatcher("iot", Nobody())
    watcher.show(run_view(RUN, lambda flow: None))
    watcher.finished("clean", batch(10, 1))
    watcher.finished("clean", batch(20, 0))
    with metrics_server(watcher, Endpoint("127.0.0.1", 0)) as bound:
        with urllib.request.urlopen(f"http://{bound}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://{bound}/", timeout=10)
    found = {
        (sample.name.removeprefix("penstock_pipeline_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["rows_in_total", "clean"] == 30
    assert found["rows_out_total", "clean"] == 29
    assert found["batches_total", "clean"] == 2
    assert found["dead_letters_total", "clean"] == 1
    assert found["broken_rules_total", "clean"] == 4
    assert found["lag_records", "clean", "readings"] == 7
    assert found["batch_seconds", "clean"] == 0.5
    assert found["last_batch_time_seconds", "clean"] == 1.5
    assert (found["flow_state", "clean", "running"], found["flow_state", "clean", "idle"]) == (1, 0)
    assert (found["flow_state", "lazy", "idle"], found["rows_in_total", "lazy"]) == (1, 0)


def test_a_taken_port_is_said_plainly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = Endpoint("127.0.0.1", taken.getsockname()[1])
        watcher = MetricsWatcher("iot", Nobody())
        with pytest.raises(RunRefused, match="already in use"), metrics_server(watcher, place):
            pass
