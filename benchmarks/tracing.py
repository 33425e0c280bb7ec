"""What tracing costs a produce request and a message of a queue: off, on, and with every message
traced. With TRACING_BEFORE=FOLDER, off is also compared with the sources of an earlier version."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.otlp_collector import otlp_collector

from benchmarks.figures import Figure, median
from benchmarks.metrics import measure_requests
from benchmarks.modes import Mode
from benchmarks.queues import cost
from benchmarks.sides import DURABLE, Side
from penstock.client.child_broker import ChildBroker
from penstock.records.record import Headers

ROUNDS = 9
# With tracing on: nothing is done for requests and for messages that nobody traces, except that a
# thread looks whether their batches have the header.
REQUEST_US_MAX = 0.5
UNTRACED_US_MAX = 1.0
TRACED: Headers = (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),)


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    rounds = ROUNDS if mode.is_judged else 1
    with ExitStack() as ends:
        collector = ends.enter_context(otlp_collector())
        on = ChildBroker(
            folder / "on", flags=("--tracing", "on"), environment=collector.environment
        )
        brokers = {"off": ChildBroker(folder / "off"), "on": on}
        before = os.environ.get("TRACING_BEFORE")
        if before is not None:
            environment = {"PYTHONPATH": before}
            brokers["before"] = ChildBroker(folder / "before", environment=environment)
        for broker in brokers.values():
            ends.enter_context(broker)
        used = measure_requests(brokers, rounds, mode.small_requests)
        yield from compared("request", used, REQUEST_US_MAX)
        yield from compared("message", messages(mode, brokers, rounds), UNTRACED_US_MAX)
        traced = [cost(mode, side(on), {}, TRACED) for _ in range(mode.queue_rounds)]
        yield figure("broker CPU, every message traced", median(traced), "us/message")


def messages(mode: Mode, brokers: dict[str, ChildBroker], rounds: int) -> dict[str, list[float]]:
    """Of messages that nobody traces."""
    used: dict[str, list[float]] = {word: [] for word in brokers}
    for number in range(rounds):
        for word in sorted(brokers, reverse=number % 2 == 1):
            used[word].append(cost(mode, side(brokers[word]), {}, ()))
    return used


def side(broker: ChildBroker) -> Side:
    return Side(name=DURABLE, bootstrap=broker.bootstrap, pids=(broker.pid,))


def compared(what: str, used: dict[str, list[float]], at_most: float) -> Iterator[Figure]:
    unit = f"us/{what}"
    for word, values in used.items():
        yield figure(f"broker CPU, tracing {word}", median(values), unit)
    more = [on - off for on, off in zip(used["on"], used["off"], strict=True)]
    yield figure(f"what tracing adds to a {what}, median round", median(more), unit, at_most)
    if "before" in used:
        more = [off - before for off, before in zip(used["off"], used["before"], strict=True)]
        yield figure(f"what it adds to a {what} where it is off", median(more), unit)


def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
    return Figure(workload="tracing", name=name, value=value, unit=unit, at_most=at_most)
