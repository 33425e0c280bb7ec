"""5,000 messages of 1 KB a second on six partitions: how long producers wait, on 1 and 3 nodes."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Note
from benchmarks.latency import Latency, Load
from benchmarks.latency_over_partitions import interleaved, middle
from benchmarks.modes import Mode
from benchmarks.sides import (
    DURABLE,
    KAFKA,
    Side,
    kafka_note,
    penstock_and_kafka,
    penstock_and_kafka_of_three,
)

TOPIC = "steady"
PARTITIONS = 6
RATE = 5_000
SIZE = 1_000
P50_MS_MAX = 3.0


def run(mode: Mode, folder: Path) -> Iterator[Figure | Note]:
    for name in ("one", "three"):
        (folder / name).mkdir()
    with penstock_and_kafka(mode, folder / "one") as sides:
        found = measure(sides, mode)
    for side, latency in found.items():
        bound = P50_MS_MAX if side == DURABLE else None
        yield figure("one node", f"p50, {side}", latency.p50_ms, at_most=bound)
        yield figure("one node", f"p99, {side}", latency.p99_ms)
    with penstock_and_kafka_of_three(mode, folder / "three") as sides:
        found = measure(sides, mode)
    for side, latency in found.items():
        yield figure("three nodes", f"p50, {side}", latency.p50_ms)
        yield figure("three nodes", f"p99, {side}", latency.p99_ms)
    if KAFKA in found:
        ratio = found[DURABLE].p99_ms / found[KAFKA].p99_ms
        yield figure("three nodes", f"p99 / p99 of {KAFKA}", ratio, unit="")
    yield kafka_note(mode)


def measure(sides: list[Side], mode: Mode) -> dict[str, Latency]:
    topics = {side.name: side.create(TOPIC, PARTITIONS) for side in sides}
    load = Load(partitions=PARTITIONS, rate=RATE, seconds=mode.latency_seconds, size=SIZE)
    rounds = interleaved(sides, topics, load, mode.rounds)
    return {name: middle(found) for name, found in rounds.items()}


def figure(
    where: str, name: str, value: float, unit: str = "ms", at_most: float | None = None
) -> Figure:
    workload = f"5,000 x 1 KB a second, {where}"
    return Figure(workload=workload, name=name, value=value, unit=unit, at_most=at_most)
