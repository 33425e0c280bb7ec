"""Writes over HTTP: one record a request, and thousands of lines, beside what somebody would take
instead; reads as Arrow; what the doors' process takes."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil

from benchmarks import door_peers
from benchmarks.figures import Figure, Note, median
from benchmarks.modes import Mode
from benchmarks.probe import megabytes_together, rss_megabytes
from penstock.client.child_broker import ChildBroker

CONNECTIONS = {"single": 32, "lines": 4}
KINDS = {"single": "one record a request", "lines": "batches of 100 B"}
TIMEOUT_S = 60.0
UNSYNCED = "JetStream without sync"
# How often Arrow is read after the first time, which loads the libraries.
ARROW_ROUNDS = 3

Measure = Callable[[str, float], list[float]]


def run(mode: Mode, folder: Path) -> Iterator[Figure | Note]:
    with ExitStack() as running:
        broker = running.enter_context(ChildBroker(folder / "data"))
        before = rss_megabytes(broker.pid)
        urllib.request.urlopen(f"http://{broker.http}/health/ready", timeout=TIMEOUT_S).read()
        after = resident(broker.pid)
        after_alone = sum(map(rss_megabytes, processes(broker.pid)))
        sides = {"ours": partial(measure, "http_process", broker.http)}
        sides |= peers(running, folder)
        found = rounds(mode, sides)
        loaded = resident(broker.pid)
        arrow = read_arrow(broker)
    single, lines = found["single", "ours"], found["lines", "ours"]
    yield figure("one record a request", median([each[1] for each in single]), "records/s", 2_500)
    yield figure("one record a request, p99", median([each[3] for each in single]), "ms")
    yield figure("NDJSON of 100 B", median([each[1] for each in lines]), "records/s", 150_000)
    yield from beside(found)
    for peer, names in door_peers.missing().items():
        yield Note(topic="http", text=f"{peer} was not measured: there is no {names}.")
    yield figure("Arrow of 100 B", arrow, "records/s", 500_000)
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
    yield figure("the same, with what they share counted twice", after_alone, "MB")
    yield figure("memory of both processes after the load", loaded, "MB")


def peers(running: ExitStack, folder: Path) -> dict[str, Measure]:
    """Those that are installed."""
    missing = door_peers.missing()
    found: dict[str, Measure] = {}
    if "JetStream" not in missing:
        for name, is_synced in (("JetStream", True), (UNSYNCED, False)):
            place = folder / name.replace(" ", "-")
            address = running.enter_context(door_peers.jetstream(place, is_synced=is_synced))
            found[name] = partial(measure, "nats_process", address)
    if "Redis" not in missing:
        address = running.enter_context(door_peers.redis_service(folder / "redis"))
        found["Redis"] = partial(measure, "http_process", address)
    return found


def rounds(mode: Mode, sides: dict[str, Measure]) -> dict[tuple[str, str], list[list[float]]]:
    """All sides take turns, so that what else the machine does hits all of them."""
    found: dict[tuple[str, str], list[list[float]]] = {}
    for kind in KINDS:
        for _ in range(mode.rounds):
            for side, measured in sides.items():
                found.setdefault((kind, side), []).append(measured(kind, mode.http_seconds))
    return found


def beside(found: dict[tuple[str, str], list[list[float]]]) -> Iterator[Figure]:
    """One by one we are to be as fast, in batches twice as fast."""
    for (kind, side), measured in found.items():
        if side == "ours":
            continue
        rate = median([each[1] for each in measured])
        ours = median([each[1] for each in found[kind, "ours"]])
        yield figure(f"{KINDS[kind]}, {side}", rate, "records/s")
        at_least = None if side == UNSYNCED else 1 if kind == "single" else 2
        yield figure(f"{KINDS[kind]}, times {side}", ours / rate, "x", at_least)


def measure(program: str, address: str, kind: str, seconds: float) -> list[float]:
    command = [sys.executable, "-m", f"benchmarks.{program}", address, kind]
    outcome = subprocess.run(
        [*command, str(CONNECTIONS[kind]), str(seconds)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S + seconds,
    )
    assert outcome.returncode == 0, outcome.stderr
    found: list[float] = json.loads(outcome.stdout)
    return found


def read_arrow(broker: ChildBroker) -> float:
    """Records a second of what was written as lines, all columns."""
    import pyarrow as pa

    url = f"http://{broker.http}/v1/topics/lines/records"
    asked = urllib.request.Request(url, headers={"Accept": "application/vnd.apache.arrow.stream"})
    rates = []
    for _ in range(1 + ARROW_ROUNDS):
        started = time.perf_counter()
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
            count = pa.ipc.open_stream(answer).read_all().num_rows
        rates.append(count / (time.perf_counter() - started))
    return median(rates[1:])


def resident(pid: int) -> float:
    return megabytes_together(processes(pid))


def processes(pid: int) -> list[int]:
    """The broker's own and that of its doors, if it is there."""
    return [pid, *(each.pid for each in psutil.Process(pid).children())]


def figure(name: str, value: float, unit: str, at_least: float | None = None) -> Figure:
    return Figure(workload="http", name=name, value=value, unit=unit, at_least=at_least)
