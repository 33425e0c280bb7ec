"""Writes over HTTP: one record a request, and thousands of lines; what the doors' process takes."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.figures import Figure, median
from benchmarks.modes import Mode
from benchmarks.probe import rss_megabytes
from penstock.client.child_broker import ChildBroker

CONNECTIONS = 32
LINE_CONNECTIONS = 4
TIMEOUT_S = 60.0


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    with ChildBroker(folder / "data") as broker:
        before = rss_megabytes(broker.pid)
        urllib.request.urlopen(f"http://{broker.http}/health/ready", timeout=TIMEOUT_S).read()
        after = resident(broker.pid)
        single = [
            measure(broker, "single", CONNECTIONS, mode.http_seconds) for _ in range(mode.rounds)
        ]
        lines = [
            measure(broker, "lines", LINE_CONNECTIONS, mode.http_seconds)
            for _ in range(mode.rounds)
        ]
        loaded = resident(broker.pid)
    yield figure("one record a request", median([each[1] for each in single]), "records/s", 2_500)
    yield figure("one record a request, p99", median([each[3] for each in single]), "ms")
    yield figure("NDJSON of 100 B", median([each[1] for each in lines]), "records/s", 150_000)
    yield Figure(
        workload="http",
        name="memory of the broker before the first request",
        value=before,
        unit="MB",
        at_most=60,
    )
    yield Figure(
        workload="http",
        name="memory of both processes after it",
        value=after,
        unit="MB",
        at_most=95,
    )
    yield figure("memory of both processes after the load", loaded, "MB")


def measure(broker: ChildBroker, kind: str, connections: int, seconds: float) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.http_process", broker.http, kind]
    outcome = subprocess.run(
        [*command, str(connections), str(seconds)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S + seconds,
    )
    assert outcome.returncode == 0, outcome.stderr
    found: list[float] = json.loads(outcome.stdout)
    return found


def resident(pid: int) -> float:
    return sum(
        rss_megabytes(each.pid) for each in [psutil.Process(pid), *psutil.Process(pid).children()]
    )


def figure(name: str, value: float, unit: str, at_least: float | None = None) -> Figure:
    return Figure(workload="http", name=name, value=value, unit=unit, at_least=at_least)
