"""What a workload sees of the broker from outside: its CPU, its memory, its first answer."""

import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from penstock.client.free_ports import free_ports
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import encode
from penstock.protocol.kafka.headers import encode_request_header
from penstock.protocol.kafka.messages.metadata import MetadataRequest
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.batch import build_batch
from penstock.records.record import Record

POLL_S = 0.001
START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 60.0
METADATA_VERSION = 9
PRODUCE_VERSION = 9
VALUE = b"v" * 100
SCHEDULER_CLOCK = 2
SIZE = struct.Struct(">i")


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, with its ended threads, by the kernel's scheduler.

    The figures that psutil reads count whole ticks of 10 ms: a short run may cost none.
    """
    if sys.platform != "linux":
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    return time.clock_gettime(cpu_clock(pid))


def cpu_clock(pid: int) -> int:
    """The clock id that clock_getcpuclockid(3) gives for a process on Linux."""
    return ~pid << 3 | SCHEDULER_CLOCK


def rss_megabytes(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss) / 1e6


def megabytes_together(pids: Iterable[int]) -> float:
    """What processes take of the machine's memory: pages of a library that several of them have
    loaded are there once."""
    own, shared = 0, Counter[str]()
    for pid in pids:
        for mapping in psutil.Process(pid).memory_maps(grouped=True):
            own += mapping.private_clean + mapping.private_dirty
            common = mapping.shared_clean + mapping.shared_dirty
            shared[mapping.path] = max(shared[mapping.path], common)
    return (own + sum(shared.values())) / 1e6


def frame(key: ApiKey, version: int, request: object, correlation_id: int = 0) -> bytes:
    body = encode_request_header(key, version, correlation_id, "bench") + encode(request, version)
    return SIZE.pack(len(body)) + body


def receive_frame(connection: socket.socket) -> bytes:
    (size,) = SIZE.unpack(receive_exactly(connection, SIZE.size))
    return receive_exactly(connection, size)


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        data = connection.recv(size - len(received))
        if not data:
            raise ConnectionError("the broker closed the connection")
        received += data
    return received


def connect(bootstrap: str) -> socket.socket:
    host, port = bootstrap.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT_S)


def one_message_request(topic: str, partition: int = 0) -> bytes:
    """A Produce with acks=all."""
    return produce_request(topic, [VALUE], partition)


def produce_request(topic: str, values: Sequence[bytes], partition: int = 0) -> bytes:
    """A Produce of one batch with acks=all."""
    now_ms = time.time_ns() // 1_000_000
    records = [
        Record(offset=number, timestamp_ms=now_ms, key=None, value=value, headers=())
        for number, value in enumerate(values)
    ]
    data = PartitionProduceData(index=partition, records=build_batch(records))
    topic_data = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topic_data)
    return frame(ApiKey.PRODUCE, PRODUCE_VERSION, request)


class TimedStart:
    """A broker that is started by hand, so that the clock runs from the birth of the process."""

    def __init__(self, data_dir: Path) -> None:
        (self.port,) = free_ports(1)
        arguments = ["up", "--kafka", f"127.0.0.1:{self.port}", "--grpc", "127.0.0.1:0"]
        arguments += ["--http", "127.0.0.1:0"]
        arguments += ["--data-dir", str(data_dir)]
        started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._await_metadata()
        self.ready_ms = (time.perf_counter() - started) * 1000

    def _await_metadata(self) -> None:
        """As a client would: connect as soon as somebody listens, and ask."""
        request = frame(ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=None))
        deadline = time.perf_counter() + START_TIMEOUT_S
        address = ("127.0.0.1", self.port)
        while time.perf_counter() < deadline:
            try:
                with socket.create_connection(address, START_TIMEOUT_S) as connection:
                    connection.sendall(request)
                    receive_frame(connection)
                    return
            except ConnectionError:
                if self.process.poll() is not None:
                    raise RuntimeError("the broker ended instead of starting") from None
                time.sleep(POLL_S)
        raise TimeoutError("the broker never answered")

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=30)
