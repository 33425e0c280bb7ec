"""Order per key, backoff and delays under real workers and a broker that dies: of each key one
record after the other, nothing before its time, and nothing lost. Of eight workers three are
confluent-kafka's share consumers."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from random import Random

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from penstock.client import Producer
from penstock.client.configs import Configs, Resource
from penstock.client.errors import ClientError
from penstock.client.kafka_connection import KafkaConnection
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.queue_leases import Lease
from penstock.client.wire.settings import WireSettings
from tests.e2e.commands import fresh
from tests.e2e.conftest import MakeBroker
from tests.e2e.processes import Broker
from tests.e2e.topics import create_topic
from tests.waiting import wait_until

pytestmark = [pytest.mark.xdist_group("queue-order"), pytest.mark.timeout(180)]

WORKERS, CONFLUENT_WORKERS, KEYS, PER_KEY, PARTITIONS = 8, 3, 24, 12, 3
DONE_S = 120.0
RELEASE_CHANCE, LEAVE_CHANCE = 0.1, 0.01
FLAGS = ("--set", "group.share.min.record.lock.duration.ms=1000")
DELAYED, DELAY_MS = 300, 4_000


@pytest.fixture
def broker(make_broker: MakeBroker) -> Iterator[Broker]:
    started = make_broker(*FLAGS).start()
    yield started
    started.close()


def queue_of(bootstrap: str, **settings: str) -> str:
    name = fresh("ordered")
    chosen = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000"}
    chosen |= {"share.delivery.count.limit": "10"}
    with KafkaConnection(bootstrap, timeout_s=30.0) as connection:
        own = {name.replace("_", "."): value for name, value in settings.items()}
        Configs(connection).alter(Resource(group=name), set_to=chosen | own)
    return name


class Ledger:
    """What all workers together have seen of each key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.begun: dict[bytes, int] = {}
        self.finished: dict[bytes, set[int]] = {b"%d" % key: set() for key in range(KEYS)}
        self.violations: list[str] = []
        self.deliveries = 0
        # The latest one of each record that anybody has begun.
        self._attempts: dict[tuple[bytes, int], int] = {}

    def begin(self, key: bytes, number: int, attempt: int) -> None:
        """A client may hand out a record from its memory whose lease is over. Others have had it
        since with a later attempt, so that one does not count."""
        with self._lock:
            self.deliveries += 1
            if attempt <= self._attempts.get((key, number), 0):
                return
            self._attempts[key, number] = attempt
            missing = set(range(number)) - self.finished[key]
            if missing:
                self.violations.append(f"{key!r}: {number} came before {sorted(missing)}")
            if number < self.begun.get(key, 0):
                self.violations.append(f"{key!r}: {number} came after {self.begun[key]}")
            self.begun[key] = max(number, self.begun.get(key, 0))

    def finishing(self, key: bytes, number: int) -> None:
        """Before the broker hears of it: it may be that only the broker hears of it."""
        with self._lock:
            self.finished[key].add(number)

    @property
    def done(self) -> int:
        with self._lock:
            return sum(map(len, self.finished.values()))


class Worker(threading.Thread):
    """Works on what it gets, fails now and then, and sometimes leaves with all that it has."""

    def __init__(self, bootstrap: str, group: str, topic: str, ledger: Ledger, seed: int) -> None:
        super().__init__(daemon=True)
        self._place = bootstrap, group, topic
        self._ledger, self._random = ledger, Random(seed)
        self.stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        bootstrap, group, topic = self._place
        try:
            while not self.stopping.is_set():
                with (
                    WireCluster(WireSettings(bootstrap=bootstrap)) as cluster,
                    cluster.queue(group, [topic]) as reader,
                ):
                    while not self.stopping.is_set() and self._random.random() >= LEAVE_CHANCE:
                        leases = reader.take(5, 0.5)
                        if leases and self._random.random() < LEAVE_CHANCE:
                            break
                        for lease in leases:
                            self._work(lease)
        except BaseException as failure:
            self.failure = failure

    def _work(self, lease: Lease) -> None:
        record = lease.record
        assert record.key is not None
        assert record.value is not None
        self._ledger.begin(record.key, int(record.value), lease.attempt)
        if self._random.random() < RELEASE_CHANCE:
            settled = lease.release()
        else:
            self._ledger.finishing(record.key, int(record.value))
            settled = lease.accept()
        try:
            settled.result(30)
        except ClientError:
            # The lease was lost with the broker, or its answer was: the record comes back, if it
            # is not done.
            return


class ConfluentWorker(threading.Thread):
    """The same with confluent-kafka's client."""

    def __init__(self, bootstrap: str, group: str, topic: str, ledger: Ledger, seed: int) -> None:
        super().__init__(daemon=True)
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "reconnect.backoff.max.ms": 500,
            "log_level": 3,
        }
        self._topic, self._ledger, self._random = topic, ledger, Random(seed)
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self.taken = 0

    def run(self) -> None:
        try:
            consumer = ShareConsumer(self._settings)
            consumer.subscribe([self._topic])
            while not self.stopping.is_set():
                messages = [each for each in consumer.poll(0.5) if each.error() is None]
                if messages:
                    self._work(consumer, messages)
            consumer.close()
        except BaseException as failure:
            self.failure = failure

    def _work(self, consumer: ShareConsumer, messages: Sequence[Message]) -> None:
        for message in messages:
            key, number = message.key(), int(message.value())
            self._ledger.begin(key, number, message.delivery_count())
            kind = AcknowledgeType.RELEASE
            if self._random.random() >= RELEASE_CHANCE:
                self._ledger.finishing(key, number)
                kind = AcknowledgeType.ACCEPT
            consumer.acknowledge(message, kind)
        try:
            outcomes = consumer.commit_sync(30)
        except KafkaException:
            # The answer was lost with the broker.
            return
        self.taken += sum(error is None for error in outcomes.values())


@pytest.mark.parametrize("backoff_ms", ["0", "100"])
def test_eight_workers_that_fail_keep_the_order_of_each_key_through_kills(
    broker: Broker, backoff_ms: str
) -> None:
    topic = create_topic(broker.bootstrap, partitions=PARTITIONS)
    group = queue_of(
        broker.bootstrap,
        penstock_queue_key_order_enable="true",
        penstock_queue_retry_backoff_ms=backoff_ms,
    )
    with Producer(broker.bootstrap) as producer:
        for number in range(PER_KEY):
            for key in range(KEYS):
                producer.send(topic, b"%d" % number, key=b"%d" % key)
    ledger = Ledger()
    kinds = [ConfluentWorker] * CONFLUENT_WORKERS + [Worker] * (WORKERS - CONFLUENT_WORKERS)
    workers = [
        kind(broker.bootstrap, group, topic, ledger, seed) for seed, kind in enumerate(kinds)
    ]
    for worker in workers:
        worker.start()

    def progress(count: int) -> bool:
        failed = [worker.failure for worker in workers if worker.failure is not None]
        assert not failed, failed
        assert ledger.violations == []
        return ledger.done >= count

    for part in (1, 2):
        wait_until("progress", lambda part=part: progress(part * KEYS * PER_KEY // 3), DONE_S)  # type: ignore[misc]
        broker.kill()
        broker.start()
    wait_until("all records", lambda: progress(KEYS * PER_KEY), DONE_S)
    for worker in workers:
        worker.stopping.set()
    for worker in workers:
        worker.join(30)
    assert ledger.violations == []
    assert ledger.deliveries > KEYS * PER_KEY, "nobody failed"
    confluent = [worker for worker in workers if isinstance(worker, ConfluentWorker)]
    assert all(worker.taken for worker in confluent), "confluent-kafka's consumers got nothing"


def test_records_for_later_come_in_time_through_a_kill_of_the_broker(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, partitions=PARTITIONS)
    group = queue_of(broker.bootstrap, penstock_queue_delay_enable="true")
    due: dict[bytes, int] = {}
    with Producer(broker.bootstrap) as producer:
        for number in range(DELAYED):
            now_ms = time.time_ns() // 1_000_000
            due[b"%d" % number] = now_ms + DELAY_MS if number % 3 else 0
            headers = [("penstock.deliver.at", b"%d" % due[b"%d" % number])]
            producer.send(topic, b"%d" % number, headers=headers)
    found: dict[bytes, int] = {}

    def take_some(count: int) -> None:
        with ExitStack() as stack:
            cluster = stack.enter_context(WireCluster(WireSettings(bootstrap=broker.bootstrap)))
            reader = stack.enter_context(cluster.queue(group, [topic]))
            limit = time.monotonic() + DONE_S
            while len(found) < count:
                assert time.monotonic() < limit, f"only {len(found)} of {count} came"
                for lease in reader.take(50, 1.0):
                    assert lease.record.value is not None
                    found.setdefault(lease.record.value, time.time_ns() // 1_000_000)
                    lease.accept().result(30)

    take_some(DELAYED // 3)
    assert all(due[value] == 0 for value in found), "some came before their time"
    broker.kill()
    broker.start()
    take_some(DELAYED)
    early = {value: (due[value], at) for value, at in found.items() if at < due[value]}
    assert not early
