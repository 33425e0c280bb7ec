"""Fills topics with record batches as a busy producer makes them, as fast as a broker takes."""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.probe import SIZE, frame, receive_frame
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.batch import build_batch
from penstock.records.record import Record

PRODUCE_VERSION = 9
TIMEOUT_S = 60
KEY = struct.Struct(">q")
# librdkafka fills batches up to about this size when messages wait; the broker's limit is above it.
BATCH_BYTES = 960_000
RECORD_OVERHEAD = 20
IN_FLIGHT = 16
# As syslog counts: a client that lives for one call has only trifles to tell.
ERRORS_ONLY = 3


def make_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": ERRORS_ONLY})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(TIMEOUT_S)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": ERRORS_ONLY})
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)


def fill_topic(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    records: int,
    value_bytes: int,
    batch_bytes: int = BATCH_BYTES,
    make: Callable[[int, int], bytes] | None = None,
) -> int:
    """Make the topic and spread that many records over it: how many there are, by whole batches.

    `make` gets the number of records and the bytes of a value, and makes a batch."""
    make_topic(bootstrap, topic, partitions)
    per_batch = max(1, min(records // partitions, batch_bytes // (value_bytes + RECORD_OVERHEAD)))
    batches = max(1, round(records / partitions / per_batch))
    batch = (make or make_batch)(per_batch, value_bytes)
    host, port = bootstrap.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
        for partition in range(partitions):
            repeat(connection, produce_frame(topic, partition, batch), batches)
    filled = partitions * batches * per_batch
    found = count_records(bootstrap, topic, partitions)
    assert found == filled, f"{topic} holds {found} instead of {filled} records"
    return filled


def make_batch(records: int, value_bytes: int) -> bytes:
    """Values that differ and don't compress, under keys of eight bytes."""
    now_ms = time.time_ns() // 1_000_000
    noise = os.urandom(value_bytes + records)
    return build_batch(
        [
            Record(
                offset=number,
                timestamp_ms=now_ms + number // 100,
                key=KEY.pack(number),
                value=noise[number : number + value_bytes],
                headers=(),
            )
            for number in range(records)
        ]
    )


def produce_frame(topic: str, partition: int, batch: bytes) -> bytes:
    data = PartitionProduceData(index=partition, records=batch)
    topic_data = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topic_data)
    return frame(ApiKey.PRODUCE, PRODUCE_VERSION, request)


def repeat(connection: socket.socket, request: bytes, count: int) -> None:
    """Send the request that often, with a bounded number of answers outstanding."""
    room = threading.Semaphore(IN_FLIGHT)

    def send() -> None:
        for _ in range(count):
            room.acquire()
            connection.sendall(request)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    for _ in range(count):
        assert len(receive_frame(connection)) > SIZE.size
        room.release()
    sender.join()


def count_records(bootstrap: str, topic: str, partitions: int) -> int:
    """By the ends of the partitions: what requests were answered is not looked into."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    places = [TopicPartition(topic, partition) for partition in range(partitions)]
    ends = [consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)[1] for place in places]
    consumer.close()
    return sum(ends)
