"""Sensors for tests of the IoT pipeline: what they sent is kept, with its place in the topic."""

import random
import threading
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from penstock.cli.demo.expectation import Expectation
from penstock.cli.demo.readings import Reading
from penstock.client import Producer
from penstock.client.producer import Delivery
from penstock.pipelines.templates.iot.anomalies import History

SECOND_US = 1_000_000
# 2026-01-01T00:00:00Z
BEGIN_US = 1_767_225_600 * SECOND_US
DELIVERY_TIMEOUT_S = 90.0


class Archived(NamedTuple):
    """A row that the archive should have, exactly once."""

    partition: int
    offset: int
    sensor: str
    number: int
    temperature: float
    at_us: int


class Load(threading.Thread):
    """Sends step by step: a second of the sensors' own time, acknowledged before the next begins.

    So no partition is ahead of another by more than a step, whatever happens to their leaders, and
    no reading is late for its window.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        sensors: int,
        readings_per_step: int,
        pause_s: float,
        expectation: Expectation,
    ) -> None:
        super().__init__(name="load", daemon=True)
        self.acknowledged: list[Archived] = []
        self.error: BaseException | None = None
        self._address = bootstrap
        self._topic = topic
        self._names = [f"sensor-{number:02}" for number in range(sensors)]
        self._readings_per_step = readings_per_step
        self._pause_s = pause_s
        self._expectation = expectation
        self._random = random.Random(4)
        self._numbers = dict.fromkeys(self._names, 0)
        self._stopping = threading.Event()

    @property
    def sent(self) -> int:
        return len(self.acknowledged)

    def end(self) -> None:
        """Ends with a reading that is so late that every window before it is done."""
        self._stopping.set()
        self.join()
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        try:
            self._send()
        except BaseException as error:
            self.error = error

    def _send(self) -> None:
        step = 0
        with Producer(self._address, delivery_timeout_s=DELIVERY_TIMEOUT_S) as producer:
            while not self._stopping.wait(self._pause_s):
                self._send_step(producer, BEGIN_US + step * SECOND_US, self._names)
                step += 1
            self._send_step(producer, BEGIN_US + (step + 7200) * SECOND_US, self._names[:1])

    def _send_step(self, producer: Producer, at_us: int, names: Sequence[str]) -> None:
        for part in range(self._readings_per_step):
            for name in names:
                self._send_one(producer, name, at_us + part * SECOND_US // self._readings_per_step)
        producer.flush()

    def _send_one(self, producer: Producer, name: str, at_us: int) -> None:
        wrong = 20 if self._random.random() < 0.002 else 0
        reading = Reading(
            sensor=name,
            number=self._numbers[name],
            temperature=round(self._random.gauss(20, 0.3) + wrong, 2),
            at_us=at_us,
        )
        self._numbers[name] += 1
        on_delivery = partial(self._on_delivery, reading)
        producer.send(self._topic, reading.value(), key=reading.key(), on_delivery=on_delivery)

    def _on_delivery(self, reading: Reading, delivery: Delivery) -> None:
        self._expectation.take(reading)
        place = (delivery.partition, delivery.offset)
        values = (reading.sensor, reading.number, reading.temperature, reading.at_us)
        self.acknowledged.append(Archived(*place, *values))


def iot_expectation(*, window_s: int, lateness_s: int) -> Expectation:
    return Expectation(
        window_us=window_s * SECOND_US, lateness_us=lateness_s * SECOND_US, new_history=History
    )
