"""A Fetch that names many partitions of which one has news, as clients without sessions send it."""

import socket
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Note, median
from benchmarks.modes import Mode
from benchmarks.probe import connect, frame, one_message_request, receive_frame
from benchmarks.sides import UNSYNCED, Side, kafka_note, penstock_and_kafka
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic

TOPIC = "fetched"
# The version that librdkafka speaks.
FETCH_VERSION = 12
BYTES_MAX = 1 << 20
PARTITIONS = (500, 2_000)
CPU_MS = (0.5, 2.0)


def run(mode: Mode, folder: Path) -> Iterator[Figure | Note]:
    with penstock_and_kafka(mode, folder) as all_sides:
        # A fetch does not care how its records came to be on disk.
        sides = [side for side in all_sides if side.name != UNSYNCED]
        for label, bound, partitions in zip(PARTITIONS, CPU_MS, mode.fetch_partitions, strict=True):
            used = measure(sides, partitions, mode)
            for side in sides:
                is_ours = side is sides[0]
                yield Figure(
                    workload=f"fetch of {label:,} partitions, one with news",
                    name="broker CPU" if is_ours else f"broker CPU, {side.name}",
                    value=median(used[side.name]),
                    unit="ms/request",
                    at_most=bound if is_ours else None,
                )
    yield kafka_note(mode)


def measure(sides: list[Side], partitions: int, mode: Mode) -> dict[str, list[float]]:
    """CPU milliseconds of the brokers for each request, by side and round."""
    used: dict[str, list[float]] = {side.name: [] for side in sides}
    for side in sides:
        fill(side, side.create(TOPIC, partitions), partitions)
    for _ in range(mode.rounds):
        for side in sides:
            used[side.name].append(one_round(side, partitions, mode.fetches))
    for side in sides:
        side.delete(TOPIC)
    return used


def fill(side: Side, topic: str, partitions: int) -> None:
    """One message in each partition."""
    with connect(side.bootstrap) as connection:
        for partition in range(partitions):
            connection.sendall(one_message_request(topic, partition))
            receive_frame(connection)


def one_round(side: Side, partitions: int, count: int) -> float:
    """Each request has news in the partition after that of the one before; all others are read."""
    requests = [request(side.topic(TOPIC), partitions, number) for number in range(count)]
    with connect(side.bootstrap) as connection:
        ask(connection, requests[:1])
        before = side.cpu_seconds()
        ask(connection, requests)
        return 1000 * (side.cpu_seconds() - before) / count


def ask(connection: socket.socket, requests: list[bytes]) -> None:
    for each in requests:
        connection.sendall(each)
        receive_frame(connection)


def request(topic: str, partitions: int, number: int) -> bytes:
    places = [
        FetchPartition(
            partition=partition,
            fetch_offset=0 if partition == number % partitions else 1,
            partition_max_bytes=BYTES_MAX,
        )
        for partition in range(partitions)
    ]
    body = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=BYTES_MAX,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=places)],
    )
    return frame(ApiKey.FETCH, FETCH_VERSION, body)
