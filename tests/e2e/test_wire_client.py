"""The wire client against real brokers: what it writes others read, what others write it reads.

Brokers are restarted and killed under it, alone and in a cluster of three: nothing that was
acknowledged may be missing or there twice, and a reader that was at work reads on.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from penstock.client.errors import ClientError, GroupActive
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.errors import GaveUp, OffsetOutOfRange, UnknownTopic
from penstock.client.wire.settings import WireSettings
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.records.batch import build_batch, decode_records, parse_header
from penstock.records.compression import Codec
from penstock.records.record import Record
from tests.e2e.cluster_nodes import Cluster
from tests.e2e.conftest import MakeBroker, MakeTopic, create_topic
from tests.e2e.processes import Broker
from tests.waiting import wait_until

RECORDS_PER_BATCH = 10
# Several are under way in each partition whenever a node dies; more would only keep it busy.
BATCHES_PER_BURST = 5
BURST_EVERY_S = 0.03


def place(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))


def batch_of(*values: bytes, codec: Codec = Codec.NONE) -> bytearray:
    now_ms = time.time_ns() // 1_000_000
    records = [
        Record(offset=0, timestamp_ms=now_ms, key=None, value=value, headers=()) for value in values
    ]
    return bytearray(build_batch(records, codec=codec))


def numbered(number: int) -> bytearray:
    first = number * RECORDS_PER_BATCH
    return batch_of(*(b"%d" % value for value in range(first, first + RECORDS_PER_BATCH)))


def records_in(data: memoryview) -> Iterator[Record]:
    position = 0
    while position < len(data):
        header = parse_header(data, position)
        yield from decode_records(data[position : position + header.size])
        position += header.size


def read(client: WireCluster, partition: TopicPartition, start: int, stop: int) -> list[bytes]:
    """Values of the range, and only those."""
    with client.fetcher(partition, start, stop) as fetcher:
        return [
            record.value or b""
            for fetched in fetcher
            for record in records_in(fetched.data)
            if start <= record.offset < stop
        ]


def consumed(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """What another client reads of partition 0."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(values) < count and time.monotonic() < deadline:
        values += [message.value() or b"" for message in consumer.consume(count, 1.0)]
    consumer.close()
    return values


@pytest.fixture
def client(broker: Broker) -> Iterator[WireCluster]:
    with WireCluster(WireSettings(bootstrap=broker.bootstrap, fetch_wait_ms=100)) as made:
        yield made


@pytest.mark.parametrize("codec", list(Codec))
def test_other_clients_read_what_it_writes(
    broker: Broker, client: WireCluster, make_topic: MakeTopic, codec: Codec
) -> None:
    topic = make_topic()
    values = [b"value-%d" % number for number in range(300)]
    with client.producer() as producer:
        for first in range(0, 300, 30):
            producer.send(place(topic), batch_of(*values[first : first + 30], codec=codec), 30)
    assert producer.acknowledged == 300
    assert consumed(broker.bootstrap, topic, 300) == values


@pytest.mark.parametrize("fetch_bytes_max", [1, 5_000, 4 << 20])
def test_it_reads_what_other_clients_write(
    broker: Broker, make_topic: MakeTopic, fetch_bytes_max: int
) -> None:
    topic = make_topic(2)
    settings = {"bootstrap.servers": broker.bootstrap, "batch.num.messages": 20, "linger.ms": 50}
    producer = confluent_kafka.Producer(settings)
    values = [b"value-%d" % number for number in range(500)]
    for value in values:
        producer.produce(topic, value, partition=1)
    producer.flush()
    wire = WireSettings(bootstrap=broker.bootstrap, fetch_bytes_max=fetch_bytes_max)
    with WireCluster(wire) as client:
        assert client.latest([place(topic, 1), place(topic, 0)]) == {
            place(topic, 1): 500,
            place(topic, 0): 0,
        }
        for start, stop in ((0, 500), (7, 8), (123, 457), (499, 500), (40, 40)):
            assert read(client, place(topic, 1), start, stop) == values[start:stop]


def test_offsets_topics_and_groups_agree_with_other_clients(
    broker: Broker, client: WireCluster, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(3)
    assert topic in client.topics()
    assert client.partitions([topic]) == {topic: [0, 1, 2]}
    assert client.partition_count(topic) == 3
    assert client.message_bytes_max(topic) == 1_048_588
    before_ms = time.time_ns() // 1_000_000 - 1_000
    with client.producer() as producer:
        producer.send(place(topic), numbered(0), RECORDS_PER_BATCH)
    after_ms = time.time_ns() // 1_000_000 + 60_000
    assert client.at_timestamp({place(topic): before_ms, place(topic, 1): 0}) == {
        place(topic): 0,
        place(topic, 1): None,
    }
    assert client.at_timestamp({place(topic): after_ms}) == {place(topic): None}
    header = client.peek(place(topic), 4)
    assert header is not None
    assert (header.base_offset, header.record_count) == (0, RECORDS_PER_BATCH)
    assert client.peek(place(topic), RECORDS_PER_BATCH) is None
    client.commit(group, {place(topic): 7, place(topic, 2): 9}, metadata="note")
    assert client.committed(group, [place(topic, index) for index in range(3)]) == {
        place(topic): 7,
        place(topic, 1): None,
        place(topic, 2): 9,
    }
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    (seen,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=60)
    assert seen.offset == 7
    consumer.subscribe([topic])
    wait_until("the group's assignment", lambda: bool(_assignment(consumer)), 60)
    with pytest.raises(GroupActive, match=f"Group {group} has active members"):
        client.commit(group, {place(topic): 1})
    consumer.close()


def _assignment(consumer: confluent_kafka.Consumer) -> list[object]:
    consumer.poll(0.1)
    return list(consumer.assignment())


def test_deleted_records_are_told_with_the_ends_of_the_log(
    broker: Broker, client: WireCluster, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with client.producer() as producer:
        for number in range(5):
            producer.send(place(topic), numbered(number), RECORDS_PER_BATCH)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = confluent_kafka.TopicPartition(topic, 0, 25)
    next(iter(admin.delete_records([wanted]).values())).result(timeout=60)
    assert client.earliest([place(topic)]) == {place(topic): 25}
    with pytest.raises(OffsetOutOfRange) as caught:
        read(client, place(topic), 3, 50)
    assert (caught.value.log_start, caught.value.log_end) == (25, 50)
    with pytest.raises(OffsetOutOfRange):
        read(client, place(topic), 51, 60)
    assert read(client, place(topic), 25, 50) == [b"%d" % number for number in range(25, 50)]
    header = client.peek(place(topic), 0)
    assert header is not None
    assert header.base_offset == 20


def test_a_reader_waits_for_what_is_not_written_yet(
    client: WireCluster, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.extend(read(client, place(topic), 0, 30)))
    reader.start()
    with client.producer() as producer:
        for number in range(3):
            producer.send(place(topic), numbered(number), RECORDS_PER_BATCH)
            producer.flush()
    reader.join(60)
    assert found == [b"%d" % number for number in range(30)]
    hasty = WireSettings(
        bootstrap=client.settings.bootstrap, retry_timeout_s=0.5, fetch_wait_ms=100
    )
    with WireCluster(hasty) as other, pytest.raises(GaveUp, match="the log ends at 30"):
        read(other, place(topic), 0, 31)


def test_a_topic_that_is_deleted_or_made_anew_is_not_read_on(
    broker: Broker, client: WireCluster
) -> None:
    topic = create_topic(broker.bootstrap)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with client.producer() as producer:
        producer.send(place(topic), numbered(0), RECORDS_PER_BATCH)
    with client.fetcher(place(topic), 0, 100) as fetcher:
        values = iter(fetcher)
        next(values)
        admin.delete_topics([topic], operation_timeout=30)[topic].result(timeout=40)
        with pytest.raises(UnknownTopic, match=topic):
            list(values)
    with pytest.raises(UnknownTopic, match=topic):
        client.latest([place(topic)])
    create_topic(broker.bootstrap, topic)
    with client.producer() as producer:
        for number in range(2):
            producer.send(place(topic), numbered(number), RECORDS_PER_BATCH)
    with client.fetcher(place(topic), 0, 100) as fetcher:
        values = iter(fetcher)
        next(values)
        admin.delete_topics([topic], operation_timeout=30)[topic].result(timeout=40)
        create_topic(broker.bootstrap, topic)
        with pytest.raises(UnknownTopic, match=topic):
            list(values)


def test_a_batch_that_is_too_large_is_told_with_its_setting(
    client: WireCluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(max_message_bytes="1000")
    assert client.message_bytes_max(topic) == 1000
    said = rf"A batch of \d+ bytes \(1 records\) is too large for topic {topic}: raise its"
    with pytest.raises(ClientError, match=said), client.producer() as producer:
        producer.send(place(topic), batch_of(b"x" * 2000), 1)


def test_nothing_is_left_behind(client: WireCluster, make_topic: MakeTopic) -> None:
    topic = make_topic(4)

    def use() -> None:
        with client.producer() as producer:
            for number in range(20):
                producer.send(place(topic, number % 4), numbered(number), RECORDS_PER_BATCH)
        for partition in range(4):
            assert len(read(client, place(topic, partition), 0, 50)) == 50
        with client.fetcher(place(topic), 0, 1_000_000) as fetcher:
            next(iter(fetcher))

    use()
    threads, files = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with client.producer():
            pass
    with client.fetcher(place(topic), 0, 50) as fetcher:
        assert len(list(fetcher)) > 0
    # Threads of earlier tests may end at any time.
    assert set(threading.enumerate()) <= threads
    assert len(os.listdir("/proc/self/fd")) <= files + 1


class Load:
    """A producer and a reader of the same partitions at work, until told to stop."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.topic = topic
        self.places = [place(topic, index) for index in range(partitions)]
        self.failures: list[BaseException] = []
        self.read: dict[TopicPartition, list[bytes]] = {one: [] for one in self.places}
        self.acknowledged = 0
        self._settings = WireSettings(
            bootstrap=bootstrap, request_timeout_s=5.0, retry_timeout_s=60.0, fetch_wait_ms=100
        )
        self._stop = threading.Event()
        self._threads = [
            self._thread(self._write),
            *(self._thread(lambda one=one: self._read(one)) for one in self.places),
        ]
        for thread in self._threads:
            thread.start()

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.failures.append(error)

        return threading.Thread(target=run)

    def _write(self) -> None:
        with WireCluster(self._settings) as client, client.producer() as producer:
            number = 0
            while not self._stop.is_set():
                for _ in range(BATCHES_PER_BURST):
                    for one in self.places:
                        producer.send(one, numbered(number), RECORDS_PER_BATCH)
                    number += 1
                self.acknowledged = producer.acknowledged
                self._stop.wait(BURST_EVERY_S)
            producer.flush()
            # The last one tells the readers where to stop.
            for one in self.places:
                producer.send(one, batch_of(b"end"), 1)
            producer.flush()
            self.acknowledged = producer.acknowledged

    def _read(self, partition: TopicPartition) -> None:
        with WireCluster(self._settings) as client, client.fetcher(partition, 0, 2**40) as fetcher:
            for fetched in fetcher:
                for record in records_in(fetched.data):
                    self.read[partition].append(record.value or b"")
                    if record.value == b"end":
                        return

    def await_progress(self, batches: int = 20) -> None:
        wanted = self.acknowledged + batches * RECORDS_PER_BATCH
        seen = {one: len(found) + RECORDS_PER_BATCH for one, found in self.read.items()}
        wait_until(
            f"progress past {self.acknowledged} records ({self.failures})",
            lambda: (
                bool(self.failures)
                or (
                    self.acknowledged >= wanted
                    and all(len(self.read[one]) >= count for one, count in seen.items())
                )
            ),
            60,
        )

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(90)
        assert self.failures == []
        assert not any(thread.is_alive() for thread in self._threads)
        counts = [len(found) for found in self.read.values()]
        assert sum(counts) == self.acknowledged
        for found in self.read.values():
            assert found == [*(b"%d" % number for number in range(len(found) - 1)), b"end"]


@contextmanager
def load(bootstrap: str, topic: str, partitions: int) -> Iterator[Load]:
    made = Load(bootstrap, topic, partitions)
    try:
        made.await_progress()
        yield made
        made.await_progress()
    finally:
        made.finish()


@pytest.mark.timeout(180)
def test_a_broker_that_is_killed_and_comes_back_loses_and_doubles_nothing(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker().start()
    topic = create_topic(broker.bootstrap, partitions=2)
    with load(broker.bootstrap, topic, 2) as running:
        broker.kill()
        broker.start()
        running.await_progress()
        broker.terminate()
        broker.start()


@pytest.mark.slow
@pytest.mark.xdist_group("cluster-clients")
@pytest.mark.timeout(240)
def test_killed_and_stopped_leaders_of_a_cluster_lose_and_double_nothing(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        topic = cluster.create_topic("orders", partitions=3)
        cluster.wait_until_healthy(topic)
        with load(cluster.bootstrap, topic, 3) as running:
            killed = cluster.leader(topic, 0)
            killed.kill()
            running.await_progress()
            killed.start()
            cluster.wait_until_healthy(topic)
            stopped = cluster.leader(topic, 1)
            stopped.terminate()
            running.await_progress()
            stopped.start()
            cluster.wait_until_healthy(topic)
            paused = cluster.leader(topic, 2)
            paused.pause()
            running.await_progress()
            paused.resume()
