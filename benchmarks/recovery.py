"""Restart after `kill -9` with a large partition: recovery reads only what may be torn."""

import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.figures import Figure
from benchmarks.modes import Mode
from benchmarks.probe import TimedStart
from benchmarks.throughput import run_client

TOPIC = "recovery"
SIZE = 1_000


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    data_dir = folder / "data"
    count = mode.recovery_bytes // SIZE
    fill(data_dir, count)
    stored = sum(path.stat().st_size for path in data_dir.rglob("*.log"))
    restarted = TimedStart(data_dir)
    try:
        started = time.perf_counter()
        end = log_end_offset(restarted.bootstrap)
        readable_ms = restarted.ready_ms + (time.perf_counter() - started) * 1000
    finally:
        restarted.kill()
    if end != count:
        raise RuntimeError(f"{count} messages were acknowledged, {end} are there")
    yield figure("partition size", stored / (1 << 20), "MiB")
    yield figure("first Metadata answered", restarted.ready_ms / 1000, "s", at_most=2.0)
    yield figure("partition answers", readable_ms / 1000, "s")


def fill(data_dir: Path, count: int) -> None:
    broker = TimedStart(data_dir)
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(30)
        run_client("produce", broker.bootstrap, TOPIC, count, SIZE)
    finally:
        broker.kill()


def log_end_offset(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=60)
    consumer.close()
    return int(end)


def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
    workload = "restart after kill -9"
    return Figure(workload=workload, name=name, value=value, unit=unit, at_most=at_most)
