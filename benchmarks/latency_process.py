"""librdkafka clients at an even rate, or a consumer of all partitions, in a process of their own.

    python -m benchmarks.latency_process consume BOOTSTRAP TOPIC PARTITIONS
    python -m benchmarks.latency_process produce BOOTSTRAP TOPIC PARTITIONS \\
        CLIENTS RATE SECONDS SIZE

A latency is what librdkafka says when it calls back: from the call to send to the one that reports
the acknowledgement. So a thread of each producer waits for these; one that looked now and then
would add the time until its next look.
"""

import json
import os
import sys
import threading
import time
from random import Random

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from benchmarks.latency import percentile

TIMEOUT_S = 60.0
PAUSE_S = 0.0005
WAIT_S = 0.1
# What is sent at first, at the same rate, is not counted: connections are made, caches filled.
LEAD_IN_S = 0.5


class Producers:
    def __init__(self, bootstrap: str, topic: str, clients: int, size: int) -> None:
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0}
        self._producers = [Producer(settings) for _ in range(clients)]
        self._topic = topic
        self._value = os.urandom(size)
        self.sent = 0
        self.latencies_ms: list[float] = []
        self._refusals: list[KafkaError] = []
        for producer in self._producers:
            threading.Thread(target=self._listen, args=(producer,), daemon=True).start()

    def _listen(self, producer: Producer) -> None:
        while not self._refusals:
            producer.poll(WAIT_S)

    def send(self, partition: int) -> None:
        producer = self._producers[self.sent % len(self._producers)]
        producer.produce(self._topic, self._value, partition=partition, on_delivery=self._delivered)
        self.sent += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refusals.append(error)
            return
        latency_s = message.latency()
        assert latency_s is not None
        self.latencies_ms.append(latency_s * 1000)

    def flush(self) -> None:
        for producer in self._producers:
            assert producer.flush(TIMEOUT_S) == 0, "messages are left without an answer"
        if self._refusals:
            raise RuntimeError(f"a message was refused: {self._refusals[0]}")

    def send_evenly(self, order: list[int], rate: int, seconds: float) -> None:
        """As many as are due since the begin, however late it is."""
        started, first, total = time.perf_counter(), self.sent, int(rate * seconds)
        while self.sent - first < total:
            due = min(total, int((time.perf_counter() - started) * rate) + 1)
            while self.sent - first < due:
                self.send(order[self.sent % len(order)])
            time.sleep(PAUSE_S)


def produce(
    bootstrap: str, topic: str, partitions: int, clients: int, rate: int, seconds: float, size: int
) -> None:
    order = list(range(partitions))
    # Not one behind the other: a client's partitions have no order either.
    Random(1).shuffle(order)
    producers = Producers(bootstrap, topic, clients, size)
    for partition in order:
        producers.send(partition)
    producers.flush()
    producers.send_evenly(order, rate, min(LEAD_IN_S, seconds))
    producers.flush()
    producers.latencies_ms.clear()
    producers.send_evenly(order, rate, seconds)
    producers.flush()
    found = producers.latencies_ms
    shares = {"p50_ms": percentile(found, 0.5), "p99_ms": percentile(found, 0.99)}
    print(json.dumps({**shares, "sent": producers.sent}))


def consume(bootstrap: str, topic: str, partitions: int) -> None:
    """Until it has seen as many messages as a line on stdin says; then prints how many."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    places = [TopicPartition(topic, partition) for partition in range(partitions)]
    asked = admin.list_offsets({place: OffsetSpec.latest() for place in places})
    ends = [
        TopicPartition(topic, place.partition, found.result(TIMEOUT_S).offset)
        for place, found in asked.items()
    ]
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign(ends)
    consumer.consume(1, 0.1)
    wanted: list[int] = []
    threading.Thread(target=lambda: wanted.append(int(sys.stdin.readline())), daemon=True).start()
    print("ready", flush=True)
    seen = 0
    deadline: float | None = None
    while not wanted or seen < wanted[0]:
        seen += sum(message.error() is None for message in consumer.consume(1_000, 0.1))
        if wanted:
            deadline = deadline or time.monotonic() + TIMEOUT_S
            if time.monotonic() > deadline:
                break
    print(seen, flush=True)
    consumer.close()


if __name__ == "__main__":
    command, bootstrap, topic, *numbers = sys.argv[1:]
    if command == "consume":
        consume(bootstrap, topic, int(numbers[0]))
    else:
        counts = [int(number) for number in numbers[:3]]
        produce(bootstrap, topic, *counts, float(numbers[3]), int(numbers[4]))
