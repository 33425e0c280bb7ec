"""The threads of the demonstration: sensors that produce and controllers that consume."""

import math
import threading
import time
from collections import Counter
from queue import SimpleQueue

from penstock.cli.demo.events import Acknowledged, Assigned, Consumed, Event, Failed, Finished
from penstock.cli.demo.readings import Reading, parse
from penstock.client.consumer import ConsumedRecord, Consumer
from penstock.client.producer import Delivery, Producer

TICK_S = 0.01


class Sensors(threading.Thread):
    """All sensors behind one producer, at a steady rate until told to stop."""

    def __init__(
        self, bootstrap: str, topic: str, *, count: int, rate: int, events: "SimpleQueue[Event]"
    ) -> None:
        super().__init__(name="sensors", daemon=True)
        self._address = bootstrap
        self._topic = topic
        self._names = [f"sensor-{number:02}" for number in range(1, count + 1)]
        self._rate = rate
        self._events = events
        self._stopping = threading.Event()
        self._sent: Counter[str] = Counter()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        try:
            with Producer(self._address, linger_ms=2, compression="lz4") as producer:
                self._send_until_stopped(producer)
                producer.flush()
            self._events.put(Finished(sent=dict(self._sent)))
        except Exception as error:
            self._events.put(Failed(error=error))

    def _send_until_stopped(self, producer: Producer) -> None:
        started = time.monotonic()
        while not self._stopping.wait(TICK_S):
            due = int((time.monotonic() - started) * self._rate) - self._sent.total()
            for _ in range(due):
                self._send_one(producer)

    def _send_one(self, producer: Producer) -> None:
        number = self._sent.total()
        sensor = self._names[number % len(self._names)]
        reading = Reading(
            sensor=sensor,
            number=self._sent[sensor],
            celsius=round(20 + 5 * math.sin(number / 500), 2),
            sent_ms=time.time() * 1000,
        )
        producer.send(
            self._topic, reading.value(), key=reading.key(), on_delivery=self._on_delivery
        )
        self._sent[sensor] += 1

    def _on_delivery(self, delivery: Delivery) -> None:
        self._events.put(Acknowledged(partition=delivery.partition, offset=delivery.offset))


class Controller(threading.Thread):
    """One member of the group; reports every reading it gets."""

    def __init__(
        self, bootstrap: str, topic: str, *, group: str, name: str, events: "SimpleQueue[Event]"
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._address = bootstrap
        self._topic = topic
        self._group = group
        self._events = events
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        options = {"client.id": self.name, "auto.commit.interval.ms": 500, "fetch.wait.max.ms": 100}
        try:
            with Consumer(self._address, group=self._group, options=options) as consumer:
                consumer.subscribe([self._topic])
                self._read_until_stopped(consumer)
        except Exception as error:
            self._events.put(Failed(error=error))

    def _read_until_stopped(self, consumer: Consumer) -> None:
        held: frozenset[int] = frozenset()
        while not self._stopping.is_set():
            records = consumer.poll(0.1)
            now_ms = time.time() * 1000
            share = frozenset(one.partition for one in consumer.assigned)
            if share != held:
                held = share
                self._events.put(Assigned(controller=self.name, partitions=share))
            for record in records:
                self._events.put(self._consumed(record, now_ms))
            consumer.done(records)

    def _consumed(self, record: ConsumedRecord, now_ms: float) -> Consumed:
        reading = parse(record.key, record.value)
        return Consumed(
            controller=self.name,
            sensor=reading.sensor,
            number=reading.number,
            partition=record.partition,
            offset=record.offset,
            latency_ms=now_ms - reading.sent_ms,
        )
