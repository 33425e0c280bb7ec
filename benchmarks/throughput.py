"""Produce and consume with librdkafka: the broker must need less CPU than its client does."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.figures import Figure
from benchmarks.modes import Mode
from benchmarks.page_cache import warm
from benchmarks.probe import cpu_seconds
from penstock.client.child_broker import ChildBroker

CLIENT_TIMEOUT_S = 300
COMMANDS = ("produce", "consume")
# The clients need memory too, and what was warmed is not all found again.
WARM_FACTOR = 3


class Sample(NamedTuple):
    """One client's run: messages per second, and CPU microseconds per message."""

    rate: float
    broker_us: float
    client_us: float


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    sizes = [
        (100, "100 B", mode.messages_of_100_bytes),
        (1_000, "1 KB", mode.messages_of_1_kilobyte),
    ]
    warm(folder, WARM_FACTOR * sum(size * count for size, _, count in sizes))
    with ChildBroker(folder / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for size, label, count in sizes:
            rounds = [measure(broker, admin, number, count, size) for number in range(mode.rounds)]
            for command in COMMANDS:
                yield from figures(f"{command} {label}", [one[command] for one in rounds], size)


def measure(
    broker: ChildBroker, admin: AdminClient, number: int, count: int, size: int
) -> dict[str, Sample]:
    """One topic from its first record to its deletion, which frees the memory for the next."""
    topic = f"throughput-{size}-{number}"
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    samples = {}
    for command in COMMANDS:
        before = cpu_seconds(broker.pid)
        client = run_client(command, broker.bootstrap, topic, count, size)
        broker_cpu = cpu_seconds(broker.pid) - before
        samples[command] = Sample(
            count / client["seconds"],
            broker_cpu * 1e6 / count,
            client["cpu_seconds"] * 1e6 / count,
        )
    admin.delete_topics([topic])[topic].result(30)
    return samples


def figures(workload: str, samples: list[Sample], size: int) -> Iterator[Figure]:
    """Those of the round whose ratio is the median."""

    def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
        return Figure(workload=workload, name=name, value=value, unit=unit, at_most=at_most)

    middle = sorted(samples, key=ratio)[len(samples) // 2]
    yield figure("rate", middle.rate, "messages/s")
    yield figure("volume", middle.rate * size / 1e6, "MB/s")
    yield figure("broker CPU", middle.broker_us, "us/message")
    yield figure("client CPU", middle.client_us, "us/message")
    yield figure("broker CPU / client CPU", ratio(middle), "", at_most=1.0)
    yield figure("the same, worst round", max(map(ratio, samples)), "")


def ratio(sample: Sample) -> float:
    return sample.broker_us / sample.client_us


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
