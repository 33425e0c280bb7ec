"""A librdkafka client in a process of its own; prints its rate and its CPU time as JSON.

    python -m benchmarks.client_process produce BOOTSTRAP TOPIC COUNT SIZE

Whole lists of messages go in and out of librdkafka, so that little of the client's CPU time is
Python's: a client that wastes time would make the broker look good.
"""

import json
import os
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

LIST_LENGTH = 10_000
TIMEOUT_S = 120.0


def produce(bootstrap: str, topic: str, count: int, size: int) -> None:
    """Send to one partition with acks=all and wait for every acknowledgement."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    producer.list_topics(topic, timeout=30)
    value = os.urandom(size)
    left = count
    with Timer(count):
        while left:
            # A message that found no room is marked in its dictionary, so that is made anew.
            messages = [{"value": value}] * min(LIST_LENGTH, left)
            left -= queue(producer, topic, messages)
        assert producer.flush(TIMEOUT_S) == 0


def queue(producer: Producer, topic: str, messages: list[dict[str, Any]]) -> int:
    """How many messages went into librdkafka's queue; a full queue is given time to empty."""
    queued = int(producer.produce_batch(topic, messages, partition=0))
    producer.poll(0 if queued == len(messages) else 0.01)
    return queued


def consume(bootstrap: str, topic: str, count: int, size: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 8_000_000,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = 0
    deadline = time.monotonic() + TIMEOUT_S
    with Timer(count):
        while found < count:
            messages = consumer.consume(LIST_LENGTH, 1.0)
            assert all(len(message.value() or b"") == size for message in messages[:1])
            found += len(messages)
            assert time.monotonic() < deadline, f"only {found} of {count} messages arrived"
    consumer.close()


class Timer:
    """Prints what the block inside took: seconds, CPU seconds and messages."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __enter__(self) -> None:
        self.cpu = time.process_time()
        self.wall = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            seconds = time.perf_counter() - self.wall
            cpu = time.process_time() - self.cpu
            print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "messages": self.count}))


if __name__ == "__main__":
    command, bootstrap, topic, count, size = sys.argv[1:]
    {"produce": produce, "consume": consume}[command](bootstrap, topic, int(count), int(size))
