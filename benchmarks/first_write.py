"""The first write to a partition against the tenth, request after request on one connection."""

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Note, median
from benchmarks.modes import Mode
from benchmarks.probe import connect, one_message_request, receive_frame
from benchmarks.sides import DURABLE, Side, kafka_note, penstock_and_kafka

TOPIC = "fresh"
WRITES = 10
TIMES_MAX = 3.0


def run(mode: Mode, folder: Path) -> Iterator[Figure | Note]:
    with penstock_and_kafka(mode, folder) as sides:
        rounds = [{side.name: measure(side, mode) for side in sides} for _ in range(mode.rounds)]
    for side in sides:
        firsts = median([one[side.name][0] for one in rounds])
        tenths = median([one[side.name][-1] for one in rounds])
        yield figure(f"first, {side.name}", firsts, "ms")
        yield figure(f"tenth, {side.name}", tenths, "ms")
        bound = TIMES_MAX if side.name == DURABLE else None
        yield figure(f"first / tenth, {side.name}", firsts / tenths, "", bound)
    yield kafka_note(mode)


def measure(side: Side, mode: Mode) -> list[float]:
    """The median time of each write in milliseconds, over the partitions of a new topic."""
    topic = side.create(TOPIC, mode.fresh_partitions)
    took: list[list[float]] = [[] for _ in range(WRITES)]
    with connect(side.bootstrap) as connection:
        for partition in range(mode.fresh_partitions):
            request = one_message_request(topic, partition)
            for number in range(WRITES):
                started = time.perf_counter()
                connection.sendall(request)
                receive_frame(connection)
                took[number].append(1000 * (time.perf_counter() - started))
    side.delete(TOPIC)
    return [median(each) for each in took]


def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
    return Figure(
        workload="first write to a partition", name=name, value=value, unit=unit, at_most=at_most
    )
