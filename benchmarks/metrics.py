"""What counting costs a produce request, and what a scrape of 1,000 partitions costs."""

import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.figures import Figure, median
from benchmarks.modes import Mode
from benchmarks.probe import connect, cpu_seconds
from benchmarks.small_requests import TOPIC, WARM_UP, measure, pipeline
from penstock.client.child_broker import ChildBroker

ROUNDS = 9
REQUEST_US_MAX = 0.5
TOPICS = 100
PARTITIONS = 10
SCRAPES = 10
SCRAPE_MS_MAX = 60.0
TURN_MS_MAX = 5.0
TIMEOUT_S = 60.0


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    rounds = ROUNDS if mode.is_judged else 1
    with ExitStack() as ends:
        brokers = {
            word: ends.enter_context(ChildBroker(folder / word, flags=("--metrics", word)))
            for word in ("on", "off")
        }
        used = measure_requests(brokers, rounds, mode.small_requests)
        more = [on - off for on, off in zip(used["on"], used["off"], strict=True)]
        yield figure("broker CPU, metrics off", median(used["off"]), "us/request")
        yield figure("broker CPU, metrics on", median(used["on"]), "us/request")
        yield figure("what metrics add, median round", median(more), "us/request", REQUEST_US_MAX)
        yield from measure_scrapes(brokers["on"], mode.partitions)


def measure_requests(
    brokers: dict[str, ChildBroker], rounds: int, count: int
) -> dict[str, list[float]]:
    """Broker CPU of a pipelined request in each round, both brokers in turn."""
    used: dict[str, list[float]] = {word: [] for word in brokers}
    with ExitStack() as ends:
        connections = {}
        for word, broker in brokers.items():
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(30)
            connections[word] = ends.enter_context(connect(broker.bootstrap))
            pipeline(connections[word], WARM_UP)
        for number in range(rounds):
            # Who is second finds a machine that the first has warmed up.
            for word in sorted(brokers, reverse=number % 2 == 1):
                used[word].append(measure(brokers[word], connections[word], count)[1])
    return used


def measure_scrapes(broker: ChildBroker, partitions: int) -> Iterator[Figure]:
    topics = max(1, min(TOPICS, partitions // PARTITIONS))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = [NewTopic(f"scraped-{number}", PARTITIONS) for number in range(topics)]
    for made in admin.create_topics(wanted).values():
        made.result(TIMEOUT_S)
    scrape(broker)
    (doors,) = psutil.Process(broker.pid).children()
    before = [cpu_seconds(broker.pid), cpu_seconds(doors.pid)]
    began = time.perf_counter()
    turns = [scrape(broker) for _ in range(SCRAPES)]
    took = time.perf_counter() - began
    own, theirs = (
        1_000 * (cpu_seconds(pid) - used) / SCRAPES
        for pid, used in zip((broker.pid, doors.pid), before, strict=True)
    )
    what = f"{topics * PARTITIONS:,} partitions"
    yield figure(f"a scrape of {what}, CPU of both processes", own + theirs, "ms", SCRAPE_MS_MAX)
    yield figure("the broker's part of it", own, "ms")
    yield figure("its longest turn of the event loop", median(turns), "ms", TURN_MS_MAX)
    yield figure("time until it is answered", 1_000 * took / SCRAPES, "ms")


def scrape(broker: ChildBroker) -> float:
    """The longest turn that the broker reports, in ms."""
    url = f"http://{broker.http}/metrics"
    text = urllib.request.urlopen(url, timeout=TIMEOUT_S).read().decode()
    families = text_string_to_metric_families(text)
    (family,) = (each for each in families if each.name == "penstock_scrape_turn_seconds")
    return 1_000 * family.samples[0].value


def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
    return Figure(workload="metrics", name=name, value=value, unit=unit, at_most=at_most)
