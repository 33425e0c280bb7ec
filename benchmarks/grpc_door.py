"""Writes and reads over gRPC: one record a call, streams of batches, a subscription."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, median
from benchmarks.http_door import resident
from benchmarks.modes import Mode
from penstock.client.child_broker import ChildBroker

CALLS = 32
STREAMS = 2
TIMEOUT_S = 60.0


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    seconds, rounds = mode.http_seconds, range(mode.rounds)
    with ChildBroker(folder / "data") as broker:
        started = time.perf_counter()
        measure(broker, "single", 1, 0.1)
        first_s = time.perf_counter() - started
        after = resident(broker.pid)
        single = [measure(broker, "single", CALLS, seconds) for _ in rounds]
        stream = [measure(broker, "stream", STREAMS, seconds) for _ in rounds]
        pushed = [measure(broker, "subscribe", 1, seconds / 2) for _ in rounds]
        loaded = resident(broker.pid)
    yield figure("one record a call", median([each[1] for each in single]), "records/s", 3_000)
    yield figure("one record a call, p99", median([each[3] for each in single]), "ms")
    rate = median([each[1] for each in stream])
    yield figure("PublishStream of 100 B", rate, "records/s", 100_000)
    rate = median([each[1] for each in pushed])
    yield figure("Subscribe of 100 B", rate, "records/s", 100_000)
    yield figure("a client process with its first calls", first_s, "s")
    yield Figure(
        workload="grpc",
        name="memory of both processes after the first call",
        value=after,
        unit="MB",
        at_most=95,
    )
    yield figure("memory of both processes after the load", loaded, "MB")


def measure(broker: ChildBroker, kind: str, calls: int, seconds: float) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.grpc_process", broker.grpc, kind]
    outcome = subprocess.run(
        [*command, str(calls), str(seconds)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S + seconds,
    )
    assert outcome.returncode == 0, outcome.stderr
    found: list[float] = json.loads(outcome.stdout)
    return found


def figure(name: str, value: float, unit: str, at_least: float | None = None) -> Figure:
    return Figure(workload="grpc", name=name, value=value, unit=unit, at_least=at_least)
