"""Proves that the benchmarks run and report every promised figure; the figures are not judged."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks import door_peers
from benchmarks.__main__ import ALL_WORKLOADS
from benchmarks.figures import Figure
from benchmarks.latency import percentile
from benchmarks.line_chart import Line, line_chart
from benchmarks.placement import children_on, choose_placement
from benchmarks.probe import cpu_seconds
from benchmarks.spark_memory import growth
from benchmarks.tree_cpu import cpu_seconds_between

from tests.documents import ROOT
from tests.e2e import apicurio
from tests.spark.class_archive import JVM_FLAGS

Bounds = dict[tuple[str, str], float]

# The soaks take about a minute each.
RUN_TIMEOUT_S = 900
TEST_TIMEOUT_S = 960

PROMISED_OF_SHORT: Bounds = {
    ("start", "first Metadata answered, median"): 300,
    ("start", "idle resident memory"): 80,
    ("one-message requests", "broker CPU, median round"): 18,
    ("one-message requests", "CPU unpipelined, the broker"): 150,
    (
        "one-message requests",
        "p99 of the slowest of 500 connections / the median one's",
    ): 3,
}
# All others take a minute together.
SHORT = ("start", "requests")
PROMISED: Bounds = {
    ("install", "size of the wheel"): 3,
    ("install", "pip install, warm cache, median"): 20,
    ("1,000 partitions", "created"): 5,
    ("1,000 partitions", "idle CPU"): 3,
    ("fetch of 500 partitions, one with news", "broker CPU"): 0.5,
    ("fetch of 2,000 partitions, one with news", "broker CPU"): 2,
    ("first write to a partition", "first / tenth, durable"): 3,
    ("5,000 partitions", "idle CPU"): 3,
    ("10,000 partitions", "created"): 8,
    ("10,000 partitions", "first Metadata answered after kill -9"): 6,
    ("10,000 members over 100 groups", "broker CPU"): 15,
    ("10,000 members over 100 groups", "memory of the groups"): 100,
    ("200 members over 2,000 partitions", "settled after a join"): 3,
    ("200 members over 2,000 partitions", "settled after a leave"): 3,
    ("200 members over 2,000 partitions", "settled after kill -9 of the coordinator"): 3,
    ("produce 100 B", "broker CPU / client CPU"): 1,
    ("consume 100 B", "broker CPU / client CPU"): 1,
    ("produce 1 KB", "broker CPU / client CPU"): 1,
    ("consume 1 KB", "broker CPU / client CPU"): 1,
    ("metrics", "what metrics add, median round"): 0.5,
    ("metrics", "a scrape of 30 partitions, CPU of both processes"): 60,
    ("metrics", "its longest turn of the event loop"): 5,
    ("registry", "load 10,000 schemas"): 3,
    ("registry", "memory that 10,000 schemas add"): 100,
    ("registry", "look-up by id, p99"): 2,
    ("http", "memory of the broker before the first request"): 60,
    ("http", "memory of both processes after it"): 95,
    ("restart after kill -9", "first Metadata answered"): 2,
    ("kill -9 of a leader", "next acknowledged write, median"): 1,
    ("kill -9 of a leader", "the same, 99th percentile"): 2,
    ("produce 100 B, three nodes", "total broker CPU, factor 3 / factor 1"): 3.5,
    ("produce 1 KB, three nodes", "total broker CPU, factor 3 / factor 1"): 3.5,
    ("1,000 partitions at factor 3", "idle CPU of the busiest node"): 5,
    ("1,000 partitions at factor 3", "all of them led by others"): 3,
}
SPARK_READS = (
    "Spark stream read, 100 B",
    "Spark batch read, 100 B",
    "Spark stream read, 1 KB",
    "Spark batch read, 1 KB",
)
SPARK_WRITES = ("Spark write, 100 B", "Spark write, 1 KB")
PROMISED_OF_SPARK: Bounds = {
    ("Spark one-record trigger", "time / constant row"): 1.3,
    ("Spark memory", "last fifth / second fifth"): 1.1,
}
PROMISED_AT_LEAST_OF_SPARK: Bounds = {
    (workload, "rate / in-memory source"): 0.6 for workload in SPARK_READS
}
SPARK = ("spark-read", "spark-write", "spark-trigger", "spark-memory")
PROMISED_OF_PIPELINES: Bounds = {("Archive memory", "last fifth / second fifth"): 1.1}
PROMISED_AT_LEAST_OF_PIPELINES: Bounds = {
    ("IoT pipeline", "rate / query by hand"): 0.7,
    ("Archive, 100 B", "rate / read to noop"): 0.5,
    ("Replay, 100 B", "rate / data source's write"): 0.5,
}
PIPELINES = ("pipeline-iot", "archive", "replay")
PROMISED_OF_LATENCY: Bounds = {("5,000 x 1 KB a second, one node", "p50, durable"): 3}
for clients in ("one client", "20 clients"):
    for partitions, durable, worst, unsynced in (
        ("100", 3, 30, 1),
        ("500", 4, 40, 1.5),
        ("2,000", 8, 80, 3),
    ):
        place = f"{partitions} partitions, {clients}"
        PROMISED_OF_LATENCY[place, "p50, durable"] = durable
        PROMISED_OF_LATENCY[place, "p99, durable"] = worst
        PROMISED_OF_LATENCY[place, "p50, without sync"] = unsynced
PROMISED_AT_LEAST = {
    ("grpc", "one record a call"): 3_000,
    ("grpc", "PublishStream of 100 B"): 100_000,
    ("grpc", "Subscribe of 100 B"): 100_000,
    ("http", "one record a request"): 2_500,
    ("http", "NDJSON of 100 B"): 150_000,
    ("http", "Arrow of 100 B"): 500_000,
}
for peer in {"JetStream", "Redis"} - door_peers.missing().keys():
    PROMISED_AT_LEAST["http", f"one record a request, times {peer}"] = 1
    PROMISED_AT_LEAST["http", f"batches of 100 B, times {peer}"] = 2
if not apicurio.missing():
    PROMISED_AT_LEAST["registry", "our rate / theirs, median round"] = 1
LATENCY = ("many-partitions", "steady-load")
if shutil.which("mvn") is not None:
    # Without Maven there are no jars of Spark's own connector, and the report says so instead.
    PROMISED_AT_LEAST_OF_SPARK |= {
        (workload, "rate / JVM connector"): 1.0 for workload in (*SPARK_READS, *SPARK_WRITES)
    }


@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_the_shortest_workloads_report_every_promise(tmp_path: Path) -> None:
    check_promises(SHORT, tmp_path, PROMISED_OF_SHORT, {})


@pytest.mark.soak
@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_the_quick_benchmark_reports_every_promise(tmp_path: Path) -> None:
    tested_elsewhere = (*SHORT, *SPARK, *PIPELINES, *LATENCY)
    names = [name for name in ALL_WORKLOADS if name not in tested_elsewhere]
    check_promises(names, tmp_path, PROMISED, PROMISED_AT_LEAST)


@pytest.mark.soak
@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_the_quick_benchmark_of_spark_reports_every_promise(tmp_path: Path) -> None:
    notes = check_promises(SPARK, tmp_path, PROMISED_OF_SPARK, PROMISED_AT_LEAST_OF_SPARK)
    assert "local[1]" in notes["Spark"]


@pytest.mark.soak
@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_the_quick_benchmark_of_latency_reports_every_promise_and_draws_it(tmp_path: Path) -> None:
    notes = check_promises(LATENCY, tmp_path, PROMISED_OF_LATENCY, {})
    assert "Apache Kafka" in notes
    pictures = sorted(tmp_path.glob("*.svg"))
    assert [path.stem.rpartition("-quick-")[2] for path in pictures] == [
        "many-partitions-1",
        "many-partitions-20",
    ]
    for path in pictures:
        ElementTree.fromstring(path.read_text())
        assert "p99, durable" in path.read_text()


@pytest.mark.soak
@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_the_quick_benchmark_of_pipelines_reports_every_promise(tmp_path: Path) -> None:
    promised = PROMISED_OF_PIPELINES, PROMISED_AT_LEAST_OF_PIPELINES
    notes = check_promises(PIPELINES, tmp_path, *promised)
    assert "local[2]" in notes["IoT pipeline"]


def check_promises(
    names: Sequence[str], folder: Path, at_most: Bounds, at_least: Bounds
) -> dict[str, str]:
    """Runs the workloads; what they note."""
    command = [sys.executable, "-m", "benchmarks", "--mode", "quick", "--results", str(folder)]
    outcome = subprocess.run(
        [*command, *names],
        cwd=ROOT,
        env=os.environ | {"SPARK_SUBMIT_OPTS": JVM_FLAGS},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )
    assert outcome.returncode == 0, outcome.stderr
    (report,) = folder.glob("*.json")
    found = json.loads(report.read_text())
    assert bounds(found["figures"], "at_most") == at_most
    assert bounds(found["figures"], "at_least") == at_least
    assert all(figure["value"] >= 0 for figure in found["figures"])
    for _, name in [*at_most, *at_least]:
        assert name in outcome.stdout
    notes = {note["topic"]: note["text"] for note in found["notes"]}
    assert all(text in outcome.stdout for text in notes.values())
    return notes


def bounds(figures: list[dict[str, Any]], side: str) -> Bounds:
    return {
        (figure["workload"], figure["name"]): figure[side]
        for figure in figures
        if figure[side] is not None
    }


@pytest.mark.parametrize(
    ("value", "bound", "verdict", "target"),
    [
        (0.7, {"at_least": 0.6}, "pass", ">= 0.6"),
        (0.5, {"at_least": 0.6}, "FAIL", ">= 0.6"),
        (1.2, {"at_most": 1.3}, "pass", "<= 1.3"),
        (1.4, {"at_most": 1.3}, "FAIL", "<= 1.3"),
        (1.4, {}, "", ""),
    ],
)
def test_a_figure_passes_when_it_keeps_its_bound(
    value: float, bound: dict[str, float], verdict: str, target: str
) -> None:
    figure = Figure(workload="one", name="two", value=value, unit="", **bound)
    assert (figure.verdict, figure.target) == (verdict, target)


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert percentile(values, 0.5) == 51
    assert percentile(values, 0.99) == 100
    assert percentile([7.0], 0.99) == 7


def test_a_chart_names_every_line_and_keeps_the_names_apart() -> None:
    lines = [Line("ours", [(1, 2.0), (10, 2.0)]), Line("<theirs>", [(1, 2.1), (10, 2.1)])]
    drawn = line_chart(title="a & b", across="partitions", upward="ms", lines=lines)
    texts = ElementTree.fromstring(drawn).findall("{http://www.w3.org/2000/svg}text")
    heights = {each.text: float(each.attrib["y"]) for each in texts}
    assert abs(heights["ours: 2"] - heights["<theirs>: 2.1"]) >= 15


def test_the_cpu_of_a_process_is_measured_finer_than_the_ticks_of_the_kernel() -> None:
    before = cpu_seconds(os.getpid())
    sum(range(1_000))
    assert 0 < cpu_seconds(os.getpid()) - before < 1


def test_a_process_that_ends_takes_nothing_off_the_cpu_of_the_others() -> None:
    """A worker of Spark that has been idle for long enough ends whenever it likes."""
    idle, busy, new = (1, 10.0), (2, 11.0), (1, 12.0)
    assert cpu_seconds_between({idle: 5.0, busy: 1.0}, {busy: 1.25, new: 0.5}) == 0.75


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_growth_of_memory_is_told_by_few_samples_too(count: int) -> None:
    """A slow look at a fast query sees it once or twice."""
    figures = {one.name: one.value for one in growth([{"7": 100.0, "8": 50.0}] * count)}
    assert figures["last fifth / second fifth"] == 1


def test_a_child_process_stays_on_the_core_that_it_was_given() -> None:
    placement = choose_placement()
    if placement.spark_core is None:
        pytest.skip("processes can't be bound to cores here")
    ask = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
    before = os.sched_getaffinity(0)
    with children_on(placement.spark_core):
        answer = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.split() == [str(placement.spark_core)]
    assert os.sched_getaffinity(0) == before
    assert placement.broker_core != placement.spark_core
