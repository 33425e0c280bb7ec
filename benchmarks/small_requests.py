"""One connection that pipelines produce requests of one message: what each costs the broker."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.figures import Figure, median
from benchmarks.modes import Mode
from benchmarks.probe import SIZE, cpu_seconds, frame, receive_frame
from penstock.client.child_broker import ChildBroker
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.batch import build_batch
from penstock.records.record import Record

TOPIC = "small-requests"
PRODUCE_VERSION = 9
VALUE = b"v" * 100
WARM_UP = 1_000


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    with ChildBroker(folder / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(30)
        host, port = broker.bootstrap.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            pipeline(connection, WARM_UP)
            rounds = [measure(broker, connection, mode.small_requests) for _ in range(mode.rounds)]
    yield figure("rate, median round", median([rate for rate, _ in rounds]), "requests/s")
    used = [cpu_us for _, cpu_us in rounds]
    yield figure("broker CPU, median round", median(used), "us/request", at_most=25.0)
    yield figure("the same, worst round", max(used), "us/request")


def measure(broker: ChildBroker, connection: socket.socket, count: int) -> tuple[float, float]:
    """Requests per second, and broker CPU microseconds per request."""
    before, started = cpu_seconds(broker.pid), time.perf_counter()
    pipeline(connection, count)
    seconds = time.perf_counter() - started
    return count / seconds, 1e6 * (cpu_seconds(broker.pid) - before) / count


def pipeline(connection: socket.socket, count: int) -> None:
    """Send without waiting for answers, and read one answer per request.

    All answers have the same size, so they are read by volume, which costs the client little.
    """
    sender = threading.Thread(target=connection.sendall, args=(one_message_request() * count,))
    sender.start()
    answer = receive_frame(connection)
    left = (count - 1) * (SIZE.size + len(answer))
    while left:
        data = connection.recv(min(left, 1 << 20))
        if not data:
            raise ConnectionError("the broker closed the connection")
        left -= len(data)
    sender.join()


def one_message_request() -> bytes:
    now_ms = time.time_ns() // 1_000_000
    record = Record(offset=0, timestamp_ms=now_ms, key=None, value=VALUE, headers=())
    data = PartitionProduceData(index=0, records=build_batch([record]))
    topic_data = [TopicProduceData(name=TOPIC, partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topic_data)
    return frame(ApiKey.PRODUCE, PRODUCE_VERSION, request)


def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
    workload = "one-message requests"
    return Figure(workload=workload, name=name, value=value, unit=unit, at_most=at_most)
