"""A thousand partitions: made in one request, and cheap while nothing happens."""

import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.figures import Figure
from benchmarks.modes import Mode
from benchmarks.probe import cpu_seconds, rss_megabytes
from penstock.client.child_broker import ChildBroker

# The work that creation leaves behind (first checkpoints, a first round of upkeep) is not idling.
SETTLE_S = 2.0
TOPIC = "many-partitions"


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    with ChildBroker(folder / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.list_topics(timeout=30)
        started = time.perf_counter()
        admin.create_topics([NewTopic(TOPIC, mode.partitions)], operation_timeout=60)[
            TOPIC
        ].result()
        yield figure("created", time.perf_counter() - started, "s", at_most=5.0)
        mode.settle(SETTLE_S)
        before = cpu_seconds(broker.pid)
        time.sleep(mode.idle_seconds)
        used = cpu_seconds(broker.pid) - before
        yield figure("idle CPU", 100 * used / mode.idle_seconds, "% of a core", at_most=3.0)
        yield figure("resident memory", rss_megabytes(broker.pid), "MB")


def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
    return Figure(workload="1,000 partitions", name=name, value=value, unit=unit, at_most=at_most)
