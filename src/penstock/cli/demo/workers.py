"""The threads of the demonstration: sensors that produce, and controllers that consume."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from queue import Empty, SimpleQueue

from penstock.cli.demo.events import (
    Acknowledged,
    Alerted,
    Assigned,
    Consumed,
    Event,
    Failed,
    Finished,
)
from penstock.cli.demo.readings import Reading, microseconds, parse
from penstock.client.consumer import ConsumedRecord, Consumer
from penstock.client.producer import Delivery, Producer

READINGS = "readings"
ALERTS = "alerts"
CONTROLLERS = ("controller-1", "controller-2")
GROUP = "controllers"
# Short enough for a smooth picture, long enough that the cores of a laptop are left to Spark.
TICK_S = 0.04
LEVELS = (5.0, 25.0)
NOISE = 0.3
# What a wrong reading is wrong by, up or down.
WRONG_BY = (10.0, 30.0)
WRONG_PER_S = 1.0


class Sensors(threading.Thread):
    """All sensors behind one producer, at a steady rate until told to stop."""

    def __init__(
        self, bootstrap: str, *, count: int, rate: int, events: "SimpleQueue[Event]"
    ) -> None:
        super().__init__(name="sensors", daemon=True)
        self._address = bootstrap
        self._names = [f"sensor-{number:02}" for number in range(1, count + 1)]
        self._levels = {name: random.uniform(*LEVELS) for name in self._names}
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
        while not self._stopping.is_set():
            _hear(producer, TICK_S)
            due = int((time.monotonic() - started) * self._rate) - self._sent.total()
            for _ in range(due):
                self._send_one(producer)

    def _send_one(self, producer: Producer) -> None:
        sensor = self._names[self._sent.total() % len(self._names)]
        reading = Reading(
            sensor=sensor,
            number=self._sent[sensor],
            temperature=self._temperature(sensor),
            at_us=time.time_ns() // 1000,
        )
        producer.send(
            READINGS,
            reading.value(),
            key=reading.key(),
            on_delivery=partial(self._on_delivery, reading),
        )
        self._sent[sensor] += 1

    def _temperature(self, sensor: str) -> float:
        temperature = self._levels[sensor] + random.gauss(0, NOISE)
        if random.random() < WRONG_PER_S / self._rate:
            temperature += random.choice([-1, 1]) * random.uniform(*WRONG_BY)
        return round(temperature, 2)

    def _on_delivery(self, reading: Reading, delivery: Delivery) -> None:
        self._events.put(
            Acknowledged(
                reading=reading,
                partition=delivery.partition,
                offset=delivery.offset,
                at_us=time.time_ns() // 1000,
                at_s=time.monotonic(),
            )
        )


def _hear(producer: Producer, seconds: float) -> None:
    """Take acknowledgements as they come, so that their time is not that of the next send."""
    until = time.monotonic() + seconds
    while (left_s := until - time.monotonic()) > 0:
        producer.raw.poll(left_s)


class Controller(threading.Thread):
    """One member of the group; reports every record that it gets from the topics."""

    def __init__(
        self, bootstrap: str, topics: Sequence[str], *, name: str, events: "SimpleQueue[Event]"
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._address = bootstrap
        self._topics = list(topics)
        self._events = events
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        options = {"client.id": self.name, "auto.commit.interval.ms": 500, "fetch.wait.max.ms": 100}
        try:
            with Consumer(
                self._topics, group=GROUP, bootstrap=self._address, options=options
            ) as consumer:
                self._read_until_stopped(consumer)
        except Exception as error:
            self._events.put(Failed(error=error))

    def _read_until_stopped(self, consumer: Consumer) -> None:
        held: frozenset[int] = frozenset()
        while not self._stopping.is_set():
            records = consumer.poll(0.1)
            now_ms = time.time() * 1000
            share = frozenset(one.partition for one in consumer.assigned if one.topic == READINGS)
            if share != held:
                held = share
                self._events.put(Assigned(controller=self.name, partitions=share))
            for record in records:
                understand = consumed if record.topic == READINGS else alerted
                self._events.put(understand(self.name, record, now_ms))
            consumer.done(records)


@contextmanager
def controllers_at_work(
    bootstrap: str, topics: Sequence[str], *, events: "SimpleQueue[Event]"
) -> Iterator[None]:
    """Both of them; they have left their group when the `with` block has ended."""
    with ExitStack() as running:
        for name in CONTROLLERS:
            controller = Controller(bootstrap, topics, name=name, events=events)
            controller.start()
            running.callback(controller.join)
            running.callback(controller.stop)
        yield


@contextmanager
def sensors_at_work(
    bootstrap: str, *, count: int, rate: int, events: "SimpleQueue[Event]"
) -> Iterator[Sensors]:
    sensors = Sensors(bootstrap, count=count, rate=rate, events=events)
    sensors.start()
    try:
        yield sensors
    finally:
        sensors.stop()


def reported(events: "SimpleQueue[Event]") -> Iterator[Event]:
    """What the threads have reported until now."""
    try:
        while True:
            yield events.get_nowait()
    except Empty:
        return


def consumed(controller: str, record: ConsumedRecord, now_ms: float) -> Consumed:
    """A record of the topic of readings."""
    reading = parse(record.value)
    return Consumed(
        controller=controller,
        sensor=reading.sensor,
        number=reading.number,
        partition=record.partition,
        offset=record.offset,
        sent_us=reading.at_us,
        latency_ms=now_ms - reading.at_us / 1000,
    )


def alerted(controller: str, record: ConsumedRecord, now_ms: float) -> Alerted:
    """A record of the topic of alerts, as the pipeline writes them."""
    content = json.loads(record.value or b"{}")
    at_us = microseconds(datetime.fromisoformat(content["at"]))
    return Alerted(
        controller=controller,
        sensor=content["sensor"],
        number=content["number"],
        temperature=content["temperature"],
        usual=content["usual"],
        at_us=at_us,
        latency_ms=now_ms - at_us / 1000,
    )
