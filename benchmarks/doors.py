"""What users of one door feel of the others: of a busy one, of hostile clients, of idle readers.

Rounds with and without take turns, so that what else the machine does hits both. Clients that only
make load run with the lowest priority: in earnest they are on other machines. Where they share the
cores with the broker all the same, the same load on a server that has nothing to do with it shows
what any busy program costs (decision 53).
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import psutil

from benchmarks.figures import Figure, median
from benchmarks.http_door import resident
from benchmarks.latency import Load, measure_latency
from benchmarks.modes import Mode
from benchmarks.paced_process import measure_paced
from benchmarks.probe import cpu_seconds
from benchmarks.spark_topics import make_topic
from penstock.client.child_broker import ChildBroker
from penstock.frontdoor.http.limits import STREAM_BEAT_S

# Of Kafka's door: what a usual service sends, with a consumer beside it.
RATE = 500
# Of the other doors.
PACE = 100
SIZE = 100
BUSY_CONNECTIONS = 32
# What the HTTP door is to take at least: see the workload `http`.
BUSY_RATE = 2_500
HOSTILE_STREAMS = 1_000
LOWEST = "19"
READY_TIMEOUT_S = 120.0
TIMES_MAX = 1.5

ALONE = "alone"
BUSY = f"an HTTP door that takes {BUSY_RATE:,} writes a second"
FLAT_OUT = "an HTTP door that works flat out"
OTHER_SERVER = "an HTTP server that works flat out and is not ours"

Latencies = dict[str, Callable[[], float]]
Disturbances = dict[str, Callable[[], AbstractContextManager[None]]]
# By door and by what was beside it.
Rounds = dict[str, dict[str, list[float]]]


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    with ChildBroker(folder / "data") as broker:
        make_topic(broker.bootstrap, "kafka", 1)
        kafka, others = latencies(broker, mode)
        # The doors' process starts, and loads what it needs.
        for measure in others.values():
            measure()
        before = resident(broker.pid)
        busy = {
            BUSY: partial(busy_http, broker, BUSY_RATE),
            FLAT_OUT: partial(busy_http, broker),
            OTHER_SERVER: busy_other_server,
        }
        rounds = in_turns(mode, {"Kafka": kafka}, busy)
        yield from times(rounds)
        door, other = (median(rounds["Kafka"][side]) for side in (FLAT_OUT, OTHER_SERVER))
        name = f"Kafka: p99 beside {FLAT_OUT} / beside {OTHER_SERVER}"
        yield figure(name, door / other, "x", at_most=1)
        streams = HOSTILE_STREAMS if mode.is_judged else 40
        attack = {"hostile clients": partial(hostile, broker, streams)}
        yield from times(in_turns(mode, {"Kafka": kafka, **others}, attack))
        with hostile(broker, streams):
            under = resident(broker.pid)
        yield figure("memory of both processes before hostile clients", before, "MB")
        yield figure("memory of both processes under hostile clients", under, "MB")
    yield from idle_readers(mode, folder)


def latencies(broker: ChildBroker, mode: Mode) -> tuple[Callable[[], float], Latencies]:
    """The 99th percentile of a write, in milliseconds, by door."""
    load = Load(partitions=1, rate=RATE, seconds=mode.door_seconds, size=SIZE)
    paced = partial(measure_paced, rate=PACE, seconds=mode.door_seconds)
    others: Latencies = {
        "HTTP": lambda: paced("http", broker.http),
        "gRPC": lambda: paced("grpc", broker.grpc),
    }
    return lambda: measure_latency(broker.bootstrap, "kafka", load).p99_ms, others


def in_turns(mode: Mode, measured: Latencies, beside: Disturbances) -> Rounds:
    """Each round begins with another of the sides, of which the first is without a disturbance."""
    sides: Disturbances = {ALONE: nullcontext, **beside}
    names = list(sides)
    rounds: Rounds = {door: {side: [] for side in names} for door in measured}
    for number in range(mode.door_rounds):
        turn = number % len(names)
        for side in names[turn:] + names[:turn]:
            with sides[side]():
                for door, measure in measured.items():
                    rounds[door][side].append(measure())
    return rounds


def times(rounds: Rounds) -> Iterator[Figure]:
    for door, found in rounds.items():
        _, *beside = found
        alone = median(found[ALONE])
        yield figure(f"{door}: p99 of a write without {beside[0]}", alone, "ms")
        for what in beside:
            p99 = median(found[what])
            yield figure(f"{door}: p99 of a write beside {what}", p99, "ms")
            # What a server costs that is not ours is not for us to promise.
            at_most = None if what == OTHER_SERVER else TIMES_MAX
            yield figure(f"{door}: times as long beside {what}", p99 / alone, "x", at_most)


@contextmanager
def busy_http(broker: ChildBroker, rate: int = 0) -> Iterator[None]:
    """One record a request, at this rate or as fast as the answers come."""
    (door,) = psutil.Process(broker.pid).children()
    with busy(broker.http, door.pid, rate):
        yield


@contextmanager
def busy_other_server() -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.bare_http"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        with busy(f"127.0.0.1:{int(process.stdout.readline())}", process.pid):
            yield
        process.communicate()


@contextmanager
def busy(address: str, pid: int, rate: int = 0) -> Iterator[None]:
    options = [address, "single", str(BUSY_CONNECTIONS), "3600", str(rate)]
    with loading("benchmarks.http_process", options) as clients:
        # The first requests make the topic.
        start = cpu_seconds(pid)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while cpu_seconds(pid) < start + 0.1:
            assert clients.poll() is None, "the clients ended early"
            assert time.monotonic() < deadline, "the server is not busy"
            time.sleep(0.01)
        yield


@contextmanager
def hostile(broker: ChildBroker, streams: int) -> Iterator[None]:
    options = [broker.http, broker.grpc, str(streams)]
    with loading("benchmarks.hostile_process", options) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "the hostile clients did not start"
        yield
        assert process.poll() is None, "the hostile clients ended early"


@contextmanager
def loading(module: str, options: list[str]) -> Iterator["subprocess.Popen[str]"]:
    command = ["nice", "-n", LOWEST, sys.executable, "-m", module, *options]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()


def idle_readers(mode: Mode, folder: Path) -> Iterator[Figure]:
    """What followers of a quiet topic cost, in both processes, signs of life included."""
    seconds = STREAM_BEAT_S if mode.is_judged else mode.idle_seconds
    with ChildBroker(folder / "idle") as broker:
        make_topic(broker.bootstrap, "quiet", 1)
        options = [broker.http, "quiet", str(mode.idle_readers)]
        with loading("benchmarks.idle_process", options) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", "the readers did not start"
            mode.settle(2.0)
            (door,) = psutil.Process(broker.pid).children()
            before = [cpu_seconds(pid) for pid in (broker.pid, door.pid)]
            time.sleep(seconds)
            after = [cpu_seconds(pid) for pid in (broker.pid, door.pid)]
            assert process.poll() is None, "the readers ended early"
            memory = resident(broker.pid)
    shares = [(b - a) / seconds * 100 for a, b in zip(before, after, strict=True)]
    name = f"{mode.idle_readers:,} idle readers of events"
    yield figure(f"{name}: of a core, the broker", shares[0], "%")
    yield figure(f"{name}: of a core, the doors", shares[1], "%", at_most=1)
    yield figure(f"{name}: memory of both processes", memory, "MB")


def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
    return Figure(workload="doors", name=name, value=value, unit=unit, at_most=at_most)
