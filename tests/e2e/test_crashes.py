"""Proves that `kill -9` loses nothing that was acknowledged, doubles nothing, reorders nothing."""

import os
import random
import threading
import time
from collections import defaultdict
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tests.e2e.clients import Message
from tests.e2e.clients.everyone import BY_NAME
from tests.e2e.cluster_history import (
    AckedPlace,
    Place,
    check_log,
    check_reads,
    known_places,
    read_log,
)
from tests.e2e.conftest import MakeBroker, create_topic
from tests.e2e.processes import Broker

PARTITIONS = 4
PRODUCERS = 3
KEYS_PER_PRODUCER = 8
KILLS = 8
# Each broker life is this long, so that kills hit start-up, replay and steady load alike.
LIFE_S = (0.05, 1.2)


class Load:
    """An idempotent producer that never stops sending and notes each acknowledgement."""

    def __init__(self, name: str, bootstrap: str, topic: str, stopping: threading.Event) -> None:
        self.acknowledged: dict[bytes, AckedPlace] = {}
        self.failures: list[str] = []
        self.sent = 0
        self._name, self._topic, self._stopping = name, topic, stopping
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
            }
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._send_until_stopped()
        except KafkaException as error:
            self.failures.append(f"the producer gave up: {error}")

    def _send_until_stopped(self) -> None:
        while not self._stopping.is_set():
            for _ in range(10):
                self._send_one()
            self._producer.poll(0.005)
        left = self._producer.flush(90)
        if left:
            self.failures.append(f"{left} records were never answered")

    def _send_one(self) -> None:
        key = f"{self._name}-{self.sent % KEYS_PER_PRODUCER}".encode()
        value = f"{self._name}:{self.sent}".encode()
        try:
            self._producer.produce(self._topic, value, key, on_delivery=self._delivered)
            self.sent += 1
        except BufferError:
            self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.acknowledged[message.value()] = (message.partition(), message.offset())
        else:
            self.failures.append(f"{message.value()!r}: {error}")

    def join(self) -> None:
        self._thread.join(timeout=120)
        assert not self._thread.is_alive()


class Reader:
    """A group member that reads all the while and commits what it has read."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.read: dict[Place, set[bytes]] = defaultdict(set)
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "session.timeout.ms": 6_000,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    place = (message.partition(), message.offset())
                    self.read[place].add(message.value())
        self._consumer.close()

    def wait_for(self, places: set[Place], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not places <= set(self.read):
            missing = len(places - set(self.read))
            assert time.monotonic() < deadline, f"the group never read {missing} records"
            time.sleep(0.1)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()


def kill_repeatedly(broker: Broker, kills: int, dice: random.Random) -> None:
    for _ in range(kills):
        time.sleep(dice.uniform(*LIFE_S))
        broker.kill()
        broker.start()


def run_history(make_broker: MakeBroker, group: str, kills: int, seed: int) -> None:
    broker = make_broker().start()
    topic = create_topic(broker.bootstrap, partitions=PARTITIONS)
    stopping = threading.Event()
    loads = [Load(f"p{number}", broker.bootstrap, topic, stopping) for number in range(PRODUCERS)]
    reader = Reader(broker.bootstrap, topic, group)
    kill_repeatedly(broker, kills, random.Random(seed))
    stopping.set()
    for load in loads:
        load.join()
    log = read_log(broker.bootstrap, topic)
    check_log(loads, log)
    reader.wait_for(known_places(loads), 90)
    reader.stop()
    check_reads(reader.read, log)


@pytest.mark.timeout(240)
def test_kills_under_load_lose_nothing(make_broker: MakeBroker, group: str) -> None:
    run_history(make_broker, group, KILLS, seed=20)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_kills_for_a_long_time(make_broker: MakeBroker, group: str) -> None:
    kills = int(os.environ.get("SOAK_SECONDS", "600")) // 2
    run_history(make_broker, group, kills, seed=int(time.time()))


def test_topics_and_settings_survive_a_kill(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    kept = create_topic(broker.bootstrap, partitions=3, retention_ms="123456")
    BY_NAME["kafka-python"].produce(broker.bootstrap, kept, [Message(key=b"k", value=b"v")])
    before = BY_NAME["aiokafka"].consume(broker.bootstrap, kept, 1)
    broker.kill()
    broker.start()
    assert BY_NAME["aiokafka"].consume(broker.bootstrap, kept, 1) == before
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    topics = consumer.list_topics(timeout=60).topics
    consumer.close()
    assert len(topics[kept].partitions) == 3
