"""A pipeline at work: to its end, stopped after a batch, refused, reset, failing, watched.

What has to be true at the end of each walk is that the table holds every reading exactly once.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from penstock.cli.main import cli
from penstock.client.free_ports import free_ports
from penstock.pipelines.checking.topics import check_topics
from penstock.pipelines.running.checkpoint_folder import last_committed
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.guarding import read_record
from penstock.pipelines.running.progress import BatchProgress, ProgressLog
from penstock.pipelines.running.refusals import FlowFailed, RunRefused
from penstock.pipelines.running.runner import run_pipeline
from penstock.pipelines.running.storage import Storage
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.conftest import Produce
from tests.spark.pipelines.running_rig import (
    AVERAGES,
    GatheringGate,
    Recorder,
    good_numbers,
    numbers_in,
    read,
    readings,
    write_specification,
)

START_TIMEOUT_S = 180.0
END_TIMEOUT_S = 120.0
POLL_S = 0.1


def penstock(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["pipeline", *arguments])


def test_a_pipeline_from_its_first_start_to_a_reset(
    spark: SparkSession,
    broker: Broker,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    path, topic = write_specification(tmp_path, AVERAGES), make_topic(partitions=2)
    pipeline = read(path, broker.bootstrap, topic)
    storage, table = Storage(Path(pipeline.storage)), tmp_path / "lake" / "raw"
    given = ("-p", f"brokers={broker.bootstrap}", "-p", f"topic={topic}")
    produce(topic, readings(0, 100))

    # Asked to stop while each flow writes a batch: those are noted, and no other begins.
    gate = GatheringGate(len(pipeline.flows), 0, GatheringGate.request)
    recorder = Recorder()
    summary = run_pipeline(pipeline, gate=gate, watcher=recorder, spark=spark)
    assert summary.was_stopped
    for name in pipeline.flows:
        assert gate.last_left(name) == 0, name
        assert last_committed(storage.flow(name).checkpoint) == 0, name
    assert sorted(flow for flow, _ in recorder.batches) == sorted(pipeline.flows)
    written = numbers_in(table)
    assert 0 < len(written) < len(good_numbers(100))
    assert len(set(written)) == len(written)

    # The next run goes on from there to the end, and says how far it has come.
    recorder = Recorder()
    summary = run_pipeline(pipeline, once=True, watcher=recorder, spark=spark)
    assert not summary.was_stopped
    assert numbers_in(table) == good_numbers(100)
    check_progress(storage, topic)
    seen = json.loads(penstock("status", str(path), *given, "--json").stdout)
    assert seen["run"]["state"] == "ended"
    assert seen["flows"]["raw"]["last"]["total"]["rows_in"] == 100
    assert "raw" in penstock("status", str(path), *given).stdout

    # A changed window does not fit what is kept, and nothing is touched.
    wider = read(path, broker.bootstrap, topic, width="1 minute")
    with pytest.raises(RunRefused, match=r"averages has changed.*window of 10 s.*of 60 s.*reset"):
        run_pipeline(wider, once=True, spark=spark)
    kept = read_record(storage.flow("raw"))
    assert kept is not None
    assert kept.sources == (f"topic {topic}",)

    # A lost checkpoint, and one of another flow in its place.
    checkpoint = storage.flow("raw").checkpoint
    shutil.move(checkpoint, tmp_path / "kept")
    with pytest.raises(RunRefused, match=f"{checkpoint} is lost"):
        run_pipeline(pipeline, once=True, spark=spark)
    shutil.copytree(storage.flow("averages").checkpoint, checkpoint)
    with pytest.raises(RunRefused, match=f"{checkpoint} belongs to another query"):
        run_pipeline(pipeline, once=True, spark=spark)
    shutil.rmtree(checkpoint)
    shutil.move(storage.path, tmp_path / "storage")
    with pytest.raises(RunRefused, match=r"is lost: parquet .*lake/raw holds rows"):
        run_pipeline(pipeline, once=True, spark=spark)
    assert penstock("status", str(path), *given).exit_code == 0
    assert numbers_in(table) == good_numbers(100)

    # A reset gets on, with the table as it would have been from the start; a stop from outside.
    outcome = penstock("reset", str(path), *given, "--tables", "--yes")
    assert outcome.exit_code == 0, outcome.output

    def stop_at_the_end(flow: str, batch: BatchProgress) -> None:
        if flow == "raw" and batch.lag_total == 0:
            asked = penstock("stop", str(path), *given, "--timeout", "0")
            assert asked.stdout == "The pipeline was asked to stop.\n", asked.output

    run_pipeline(pipeline, watcher=Recorder(after=stop_at_the_end), spark=spark)
    assert numbers_in(table) == good_numbers(100)


def check_progress(storage: Storage, topic: str) -> None:
    """What `progress.jsonl` says of the last batches of both flows."""
    lines = ProgressLog(storage.flow("raw").progress).last(100)
    last = lines[-1]
    assert [line.batch for line in lines] == list(range(len(lines)))
    assert sum(last.ends[topic].values()) == 100
    assert last.lag == {topic: {"0": 0, "1": 0}}
    assert lines[0].lag_total > 0
    assert last.total.rows_in == 100
    assert last.total.rows_out == len(good_numbers(100))
    assert last.total.rules == {"readings": {"plausible": 10}}
    assert last.total.dead_letters == 10
    assert last.batch_ms > 0
    assert last.durations_ms["addBatch"] > 0
    assert any(line.rate > 0 for line in lines)
    averages = ProgressLog(storage.flow("averages").progress).last()[0]
    assert averages.watermark is not None
    assert averages.watermark.startswith("2026-01-01T00:00:0")
    assert averages.state_rows > 0
    assert averages.state_bytes > 0


def test_a_failing_flow_is_named_and_the_others_end_after_their_batch(
    spark: SparkSession,
    broker: Broker,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    path, topic = write_specification(tmp_path), make_topic(partitions=1)
    text = path.read_text().replace("action: route", "action: keep")
    text += "  failing: {from: hot, to: {parquet: lake/hot}}\n"
    hot = "  hot: {sql: SELECT * FROM readings, rules: {cold: {condition: temperature < 50, "
    path.write_text(text.replace("flows:", hot + "action: fail}}}\nflows:"))
    pipeline = read(path, broker.bootstrap, topic)
    produce(topic, readings(0, 20))
    said = r"The flow failing failed: A row of hot breaks the rule cold.*99\.0"
    gate = StopGate()
    with pytest.raises(FlowFailed, match=said) as failed:
        run_pipeline(pipeline, gate=gate, spark=spark)
    assert "\n" not in str(failed.value)
    storage = Storage(Path(pipeline.storage))
    for name in pipeline.flows:
        assert last_committed(storage.flow(name).checkpoint) == gate.last_left(name)
    outcome = penstock("status", "--storage", str(storage.path))
    assert "failed" in outcome.stdout
    assert "The flow failing failed" in outcome.stdout


def test_an_unknown_topic_is_named_by_a_check_and_by_a_run(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    path, topic = write_specification(tmp_path), make_topic(partitions=1)
    misspelt = read(path, broker.bootstrap, f"{topic}x")
    [problem] = check_topics(misspelt)
    assert f"iot.yaml:9:5: There is no topic {topic}x at {broker.bootstrap}" in str(problem)
    assert topic in problem.sentence.removeprefix(f"There is no topic {topic}x")
    with pytest.raises(FlowFailed, match=f"The flow raw failed: .*{topic}x"):
        run_pipeline(misspelt, once=True, spark=spark)

    # The storage folder remembers nothing of it that would stand in the way of the right name, nor
    # of a first batch that could not be planned: a full disk or a kill leaves such files.
    right = read(path, broker.bootstrap, topic)
    assert check_topics(right) == []
    plans = Storage(Path(right.storage)).flow("raw").checkpoint / "offsets"
    plans.mkdir(parents=True, exist_ok=True)
    for name in (".0.e9d1.tmp", "..0.e9d1.tmp.crc"):
        (plans / name).touch()
    produce(topic, readings(0, 20))
    run_pipeline(right, once=True, spark=spark)
    assert numbers_in(tmp_path / "lake" / "raw") == good_numbers(20)


@pytest.mark.slow
def test_sigterm_ends_the_command_after_the_batch_and_the_terminal_stays_clean(
    spark: SparkSession,
    broker: Broker,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    path, topic = write_specification(tmp_path), make_topic(partitions=2)
    pipeline = read(path, broker.bootstrap, topic)
    storage = Storage(Path(pipeline.storage))
    produce(topic, readings(0, 160))
    given = ("-p", f"brokers={broker.bootstrap}", "-p", f"topic={topic}")
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", str(path), *given]
    (port,) = free_ports(1)
    settings = ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    settings += ["--metrics", f"127.0.0.1:{port}"]
    run = subprocess.Popen(
        [*command, *settings], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        progress = ProgressLog(storage.flow("raw").progress)
        wait_until(lambda: run.poll() is not None or bool(progress.last()), START_TIMEOUT_S)
        seen = penstock("status", "--storage", str(storage.path), "--json")
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=END_TIMEOUT_S) as scraped:
            metrics = scraped.read().decode()
        # A second run, from here, is refused while that one lives.
        with pytest.raises(RunRefused, match=f"in use by process {run.pid}"):
            run_pipeline(pipeline, once=True, spark=spark)
        os.kill(run.pid, signal.SIGTERM)
        output, errors = run.communicate(timeout=END_TIMEOUT_S)
    finally:
        if run.poll() is None:
            run.kill()
            run.communicate()
    assert run.returncode == 0, errors
    assert json.loads(seen.stdout)["run"]["pid"] == run.pid
    assert f'penstock_pipeline_info{{pipeline="{pipeline.name}"}} 1.0' in metrics
    for name in pipeline.flows:
        assert f'penstock_pipeline_rows_in_total{{flow="{name}"}}' in metrics
    assert output == ""
    assert "Stopped after" in errors
    for noise in ("WARN", "incubator", "Traceback", "Exception", "log4j"):
        assert noise not in errors
    assert (storage.path / "spark.log").exists()
    for name in pipeline.flows:
        checkpoint = storage.flow(name).checkpoint
        assert (
            last_committed(checkpoint) == ProgressLog(storage.flow(name).progress).last()[0].batch
        )
    before = numbers_in(tmp_path / "lake" / "raw")
    assert len(set(before)) == len(before)
    run_pipeline(pipeline, once=True, spark=spark)
    assert numbers_in(tmp_path / "lake" / "raw") == good_numbers(160)


def wait_until(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"nothing happened within {timeout_s:g} s"
        time.sleep(POLL_S)
