"""Produce and consume with librdkafka: the broker must need less CPU than its client does."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.figures import Figure
from benchmarks.modes import Mode
from benchmarks.page_cache import warm
from benchmarks.probe import cpu_seconds
from penstock.client.child_broker import ChildBroker

CLIENT_TIMEOUT_S = 300
# The clients need memory too, and what was warmed is not all found again.
WARM_FACTOR = 3


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    sizes = [
        (100, "100 B", mode.messages_of_100_bytes),
        (1_000, "1 KB", mode.messages_of_1_kilobyte),
    ]
    warm(folder, WARM_FACTOR * sum(size * count for size, _, count in sizes))
    with ChildBroker(folder / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for size, label, count in sizes:
            topic = f"throughput-{size}"
            admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
            for command in ("produce", "consume"):
                yield from measure(broker, command, topic, count, size, label)


def measure(
    broker: ChildBroker, command: str, topic: str, count: int, size: int, label: str
) -> Iterator[Figure]:
    before = cpu_seconds(broker.pid)
    client = run_client(command, broker.bootstrap, topic, count, size)
    broker_cpu = cpu_seconds(broker.pid) - before
    workload = f"{command} {label}"
    rate = count / client["seconds"]
    per_message = 1e6 / count

    def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
        return Figure(workload=workload, name=name, value=value, unit=unit, at_most=at_most)

    yield figure("rate", rate, "messages/s")
    yield figure("volume", rate * size / 1e6, "MB/s")
    yield figure("broker CPU", broker_cpu * per_message, "us/message")
    yield figure("client CPU", client["cpu_seconds"] * per_message, "us/message")
    yield figure("broker CPU / client CPU", broker_cpu / client["cpu_seconds"], "", at_most=1.0)


def run_client(command: str, bootstrap: str, topic: str, count: int, size: int) -> dict[str, Any]:
    arguments = [command, bootstrap, topic, str(count), str(size)]
    outcome = subprocess.run(
        [sys.executable, "-m", "benchmarks.client_process", *arguments],
        capture_output=True,
        text=True,
        timeout=CLIENT_TIMEOUT_S,
    )
    if outcome.returncode != 0:
        raise RuntimeError(f"the client failed: {outcome.stderr[-2000:]}")
    result = json.loads(outcome.stdout)
    assert isinstance(result, dict)
    return result
