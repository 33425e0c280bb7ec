"""Thousands of partitions on one node: made, idle, and back after `kill -9`."""

import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from benchmarks.figures import Figure, Note
from benchmarks.modes import Mode
from benchmarks.probe import TimedStart, cpu_seconds, rss_megabytes
from benchmarks.sides import KAFKA, kafka_nodes, kafka_note, warm_up

TOPIC = "thousands"
# What creation leaves behind is not idling.
SETTLE_S = 5.0
TIMEOUT_S = 300.0


def run(mode: Mode, folder: Path) -> Iterator[Figure | Note]:
    yield from idle(mode, folder)
    yield from restart(mode, folder)
    yield kafka_note(mode)


def idle(mode: Mode, folder: Path) -> Iterator[Figure]:
    broker = TimedStart(folder / "idle")
    try:
        create(broker.bootstrap, mode.idle_partitions)
        yield idling("idle CPU", used(mode, (broker.pid,)), "% of a core", at_most=3.0)
        yield idling("resident memory", rss_megabytes(broker.pid), "MB")
    finally:
        broker.kill()
    with kafka_nodes(folder, 1) as sides:
        for kafka in sides:
            warm_up(kafka, mode)
            create(kafka.bootstrap, mode.idle_partitions)
            yield idling(f"idle CPU, {KAFKA}", used(mode, kafka.pids), "% of a core")
            memory = sum(rss_megabytes(pid) for pid in kafka.pids)
            yield idling(f"resident memory, {KAFKA}", memory, "MB")


def used(mode: Mode, pids: tuple[int, ...]) -> float:
    mode.settle(SETTLE_S)
    before = sum(cpu_seconds(pid) for pid in pids)
    time.sleep(mode.idle_seconds)
    return 100 * (sum(cpu_seconds(pid) for pid in pids) - before) / mode.idle_seconds


def restart(mode: Mode, folder: Path) -> Iterator[Figure]:
    broker = TimedStart(folder / "restart")
    try:
        seconds = create(broker.bootstrap, mode.restart_partitions)
        yield restarting("created", seconds, at_most=8.0)
        mode.settle(SETTLE_S)
    finally:
        broker.kill()
    broker = TimedStart(folder / "restart")
    try:
        started = time.perf_counter()
        await_leaders(broker.bootstrap, mode.restart_partitions)
        led_s = broker.ready_ms / 1000 + time.perf_counter() - started
        yield restarting("first Metadata answered after kill -9", broker.ready_ms / 1000, 6.0)
        yield restarting("all partitions answer after kill -9", led_s)
    finally:
        broker.kill()


def create(bootstrap: str, partitions: int) -> float:
    """How many seconds it took."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.list_topics(timeout=30)
    started = time.perf_counter()
    wanted = NewTopic(TOPIC, partitions)
    admin.create_topics([wanted], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)[
        TOPIC
    ].result(TIMEOUT_S)
    return time.perf_counter() - started


def await_leaders(bootstrap: str, partitions: int) -> None:
    """Until every partition has told its end, which only a leader does that knows it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    places = [TopicPartition(TOPIC, partition) for partition in range(partitions)]
    asked = admin.list_offsets(
        {place: OffsetSpec.latest() for place in places}, request_timeout=TIMEOUT_S
    )
    for found in asked.values():
        found.result(TIMEOUT_S)


def idling(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
    workload = "5,000 partitions"
    return Figure(workload=workload, name=name, value=value, unit=unit, at_most=at_most)


def restarting(name: str, value: float, at_most: float | None = None) -> Figure:
    workload = "10,000 partitions"
    return Figure(workload=workload, name=name, value=value, unit="s", at_most=at_most)
