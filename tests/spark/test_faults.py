"""Proves that a query misses nothing when a broker or an executor is killed in the middle of it."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.e2e.cluster_nodes import Cluster, ClusterNode
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.conftest import Produce
from tests.spark.rig import Output, Record, finish, rows, started, wait_for_query
from tests.spark.rig_server import SparkServer, is_executor
from tests.waiting import wait_until

PARTITIONS = 3
KEYS = 12
# Enough that a query sees several micro-batches before and after the fault.
BEFORE_FAULT = 300
AFTER_FAULT = 300
RECORDS = 20_000
BATCH_ROWS_MAX = "spark.sql.execution.arrow.maxRecordsPerBatch"
BLOCKED_S_MAX = 60.0


class Load(threading.Thread):
    """Writes numbered values, a few hundred a second; what counts is what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        self.producer = Producer(settings | {"partitioner": "murmur2_random"})
        self.topic = topic
        self.acknowledged: list[bytes] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stopping.wait(0.02):
            for _ in range(5):
                value = b"%d" % number
                key = b"key-%d" % (number % KEYS)
                self.producer.produce(self.topic, value, key, on_delivery=self._on_delivery)
                number += 1
            self.producer.poll(0)
        assert self.producer.flush(60) == 0

    def _on_delivery(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(message.value())  # type: ignore[attr-defined]

    def finish(self) -> list[bytes]:
        self.stopping.set()
        self.join(timeout=70)
        assert not self.is_alive()
        return self.acknowledged


def stream_of(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


def to_topic(frame: DataFrame, bootstrap: str, topic: str, checkpoint: Path) -> StreamingQuery:
    writer = frame.select("key", "value").writeStream.format("penstock").option("topic", topic)
    writer = writer.option("kafka.bootstrap.servers", bootstrap)
    return started(writer.option("checkpointLocation", str(checkpoint)).start)


def rows_seen(query: StreamingQuery) -> int:
    """By the offsets to which the query has come: of its batches Spark keeps only the last."""
    progress = query.lastProgress
    end = progress and json.loads(progress["sources"][0]["endOffset"])
    if not end:
        return 0
    return sum(
        offset
        for topic, offsets in end.items()
        if not topic.startswith("@")
        for offset in offsets.values()
    )


def topic_rows(spark: SparkSession, bootstrap: str, topic: str) -> list[tuple[bytes, bytes]]:
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    frame = reader.option("subscribe", topic).load()
    return [(bytes(row.key), bytes(row.value)) for row in rows(frame)]


def first_seen(written: list[tuple[bytes, bytes]], key: bytes) -> list[int]:
    """The numbers of one key in the order in which each came first; repetitions are left out."""
    return list(dict.fromkeys(int(value) for each, value in written if each == key))


def test_a_broker_is_killed_in_the_middle_of_streaming_queries(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A broker that leads partitions of what is read and of what is written dies under load.

    One query writes files, which Spark keeps exactly once, so that each record must be there once;
    the other one writes a topic, where a repeated task may repeat rows but can't miss or swap any.
    """
    with Cluster(tmp_path) as cluster:
        source, sink = (
            cluster.create_topic(name, partitions=PARTITIONS) for name in ("source", "sink")
        )
        load = Load(cluster.bootstrap, source)
        load.start()
        frame = stream_of(spark, cluster.bootstrap, source)
        output = Output(tmp_path / "files")
        queries = [
            output.start(frame),
            to_topic(frame, cluster.bootstrap, sink, tmp_path / "checkpoint"),
        ]
        try:
            for query in queries:
                wait_for_query(query, "reading", at_least(query, BEFORE_FAULT))
            seen = [rows_seen(query) for query in queries]
            leader_of_both(cluster, source, sink).kill()
            for query, count in zip(queries, seen, strict=True):
                wait_for_query(query, "reading on", at_least(query, count + AFTER_FAULT))
            acknowledged = load.finish()
            for query in queries:
                query.processAllAvailable()
        finally:
            for query in queries:
                query.stop()
        files = [bytes(row.value) for row in output.rows(frame)]
        assert sorted(files) == sorted(acknowledged)
        written = topic_rows(spark, cluster.bootstrap, sink)
        assert {value for _, value in written} == set(acknowledged)
        for key in {key for key, _ in written}:
            assert first_seen(written, key) == sorted(first_seen(written, key))


def leader_of_both(cluster: Cluster, *topics: str) -> ClusterNode:
    """A node that leads a partition of each of the topics, as all nodes do in the end."""
    found: set[int] = set()

    def is_found() -> bool:
        leaders = [
            {cluster.leader(topic, partition).number for partition in range(PARTITIONS)}
            for topic in topics
        ]
        found.update(set.intersection(*leaders))
        return bool(found)

    wait_until("a leader of both topics", is_found)
    return cluster.nodes[min(found)]


def at_least(query: StreamingQuery, count: int) -> Callable[[], bool]:
    return lambda: rows_seen(query) >= count


def stuck_in_the_middle(frame: DataFrame, flag: Path) -> DataFrame:
    """The same rows; one task stops after its first batch, says who it is, and waits to be killed.

    The flag is taken once, by one attempt of one task: anyone who comes later passes everything on.
    """

    def stuck(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            try:
                taken = os.open(flag, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                continue
            os.write(taken, b"%d\n" % os.getppid())
            os.close(taken)
            deadline = time.monotonic() + BLOCKED_S_MAX
            daemon = os.getppid()
            while time.monotonic() < deadline and os.getppid() == daemon:
                time.sleep(0.05)
            raise AssertionError("nobody killed the executor")

    return frame.mapInArrow(stuck, frame.schema)


def kill_executor(flag: Path, server: SparkServer) -> None:
    """`kill -9` to the executor whose task is in the middle."""
    wait_until("a task in the middle", lambda: flag.exists() and flag.read_text().endswith("\n"))
    executor = psutil.Process(int(flag.read_text())).parent()
    assert executor is not None
    assert is_executor(executor)
    assert executor.pid in {each.pid for each in server.executors()}
    executor.send_signal(signal.SIGKILL)


@pytest.fixture
def small_batches(remote_spark: SparkSession) -> Iterator[None]:
    """A task gets its rows in many batches, so that the first of them is only its beginning."""
    before = remote_spark.conf.get(BATCH_ROWS_MAX)
    remote_spark.conf.set(BATCH_ROWS_MAX, "500")
    yield
    remote_spark.conf.set(BATCH_ROWS_MAX, before)


@pytest.fixture
def numbered(make_topic: MakeTopic, produce: Produce) -> str:
    topic = make_topic(partitions=PARTITIONS)
    values: list[Record | bytes] = [
        Record(b"%d" % number, b"key-%d" % (number % KEYS)) for number in range(RECORDS)
    ]
    produce(topic, values)
    return topic


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
def test_an_executor_is_killed_in_the_middle_of_a_reading_and_writing_task(
    remote_spark: SparkSession,
    spark_server: SparkServer,
    broker: Broker,
    make_topic: MakeTopic,
    numbered: str,
    tmp_path: Path,
) -> None:
    """Its rows are read again, and what it had sent already may be there twice."""
    sink, flag = make_topic(partitions=PARTITIONS), tmp_path / "flag"
    frame = stream_of(remote_spark, broker.bootstrap, numbered).select("key", "value")
    stuck = stuck_in_the_middle(frame, flag)
    query = to_topic(stuck, broker.bootstrap, sink, tmp_path / "checkpoint")
    try:
        kill_executor(flag, spark_server)
        query.processAllAvailable()
    finally:
        query.stop()
    written = topic_rows(remote_spark, broker.bootstrap, sink)
    assert {int(value) for _, value in written} == set(range(RECORDS))
    for key in {key for key, _ in written}:
        assert first_seen(written, key) == sorted(first_seen(written, key))


@pytest.mark.slow
@pytest.mark.usefixtures("small_batches")
def test_an_executor_is_killed_in_the_middle_of_a_task_that_writes_files(
    remote_spark: SparkSession,
    spark_server: SparkServer,
    broker: Broker,
    numbered: str,
    tmp_path: Path,
) -> None:
    """Files of a killed task don't count, so each record is there once."""
    flag = tmp_path / "flag"
    frame = stream_of(remote_spark, broker.bootstrap, numbered).select(
        "partition", "offset", "value"
    )
    stuck = stuck_in_the_middle(frame, flag)
    output = Output(tmp_path)
    query = output.start(stuck, availableNow=True)
    kill_executor(flag, spark_server)
    finish(query)
    found = sorted(int(bytes(row.value)) for row in output.rows(frame))
    assert found == list(range(RECORDS))
