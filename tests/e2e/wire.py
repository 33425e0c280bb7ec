"""A bare connection that speaks Kafka's protocol by hand, for what real clients would not do."""

import socket
import struct
import time
from types import TracebackType
from typing import Any, Self

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.catalogue import EXCHANGES
from penstock.protocol.kafka.codec import decode, encode
from penstock.protocol.kafka.headers import decode_response_header, encode_request_header
from penstock.protocol.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.batch import build_batch
from penstock.records.record import Record

PRODUCE_VERSION = 9
FETCH_VERSION = 11
SIZE = struct.Struct(">i")


def frame(key: ApiKey, version: int, request: object, correlation_id: int = 0) -> bytes:
    body = encode_request_header(key, version, correlation_id, "wire") + encode(request, version)
    return SIZE.pack(len(body)) + body


def produce_frame(topic: str, value: bytes, *, acks: int = -1, correlation_id: int = 0) -> bytes:
    """A produce request with one record for partition 0."""
    now_ms = time.time_ns() // 1_000_000
    record = Record(offset=0, timestamp_ms=now_ms, key=None, value=value, headers=())
    data = PartitionProduceData(index=0, records=build_batch([record]))
    topic_data = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topic_data)
    return frame(ApiKey.PRODUCE, PRODUCE_VERSION, request, correlation_id)


def fetch_frame(
    topic: str, offset: int, *, bytes_max: int = 1 << 20, wait_ms: int = 0, correlation_id: int = 0
) -> bytes:
    place = FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=bytes_max,
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[place])],
        rack_id="",
    )
    return frame(ApiKey.FETCH, FETCH_VERSION, request, correlation_id)


def connect(bootstrap: str, timeout_s: float = 30.0) -> "Wire":
    host, port = bootstrap.split(":")
    return Wire(socket.create_connection((host, int(port)), timeout_s))


class Wire:
    """One connection; requests are answered in the order in which they were sent."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, key: ApiKey, version: int) -> Any:
        body = self.receive_frame()
        _, position = decode_response_header(key, version, memoryview(body))
        return decode(EXCHANGES[key].response, version, body, position)

    def receive_frame(self) -> bytes:
        (size,) = SIZE.unpack(self._exactly(SIZE.size))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            data = self.socket.recv(min(1 << 20, size - len(received)))
            if not data:
                raise ConnectionError("the broker closed the connection")
            received += data
        return bytes(received)

    def produce(self, topic: str, value: bytes) -> Any:
        """The answer for partition 0."""
        self.send(produce_frame(topic, value))
        answer = self.receive(ApiKey.PRODUCE, PRODUCE_VERSION)
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, *, wait_ms: int = 0) -> Any:
        """The answer for partition 0."""
        self.send(fetch_frame(topic, offset, wait_ms=wait_ms))
        answer = self.receive(ApiKey.FETCH, FETCH_VERSION)
        return answer.responses[0].partitions[0]
