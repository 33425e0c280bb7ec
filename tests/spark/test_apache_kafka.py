"""Proves that what reads and writes topics with Spark does so with Apache Kafka itself as well.

So the data source follows the protocol and not merely our broker, and a topic moves from Apache
Kafka to Penstock with `archive` and `replay`, unchanged.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row, SparkSession

from penstock.client import Admin
from tests.e2e.apache_kafka import apache_kafka
from tests.e2e.clients.java import missing
from tests.e2e.processes import Broker
from tests.spark import rig
from tests.spark.pipelines.archive_rig import archive, replay, verify
from tests.spark.rig import JAVA_PARTITIONER, Record
from tests.spark.topic_contents import Stored, stored

PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BEGIN_MS = 1_700_000_000_000
SHAPES = (
    Record(value=b"plain"),
    Record(value=None, key=b"tombstone"),
    Record(value=b"", key=b""),
    Record(value=b"many", key=b"k", headers=(("a", b"1"), ("b", b""), ("a", None))),
)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())}")
    with apache_kafka(tmp_path_factory.mktemp("kafka")) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="module")
def contents(kafka: str) -> list[Stored]:
    """What the topic `shapes` holds, in all codecs."""
    create(kafka, "shapes")
    for codec in CODECS:
        records = [
            SHAPES[number % len(SHAPES)]._replace(
                partition=number % PARTITIONS, timestamp_ms=BEGIN_MS + number * 7_919 % 1_000
            )
            for number in range(120)
        ]
        rig.produce(kafka, "shapes", records, codec=codec)
    return stored(kafka, "shapes")


@pytest.mark.slow
def test_the_data_source_reads_and_writes(
    spark: SparkSession, kafka: str, contents: list[Stored], tmp_path: Path
) -> None:
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", kafka)
    reader = reader.option("includeHeaders", "true").option("subscribe", "shapes")
    assert [as_stored(row) for row in rig.rows(reader.load())] == contents
    assert len(contents) == 120 * len(CODECS)

    stream = spark.readStream.format("penstock").option("kafka.bootstrap.servers", kafka)
    stream = stream.option("subscribe", "shapes").option("includeHeaders", "true")
    stream = stream.option("startingOffsets", "earliest").option("minPartitions", "7")
    found = rig.run_available_now(stream.load(), tmp_path)
    assert [as_stored(row) for row in found] == contents

    for topic in ("ours", "theirs"):
        create(kafka, topic)
    keys = [f"key-{number % 50}".encode() for number in range(1_000)]
    rows = [(key, str(number).encode()) for number, key in enumerate(keys)]
    frame = spark.createDataFrame(rows, "key binary, value binary").coalesce(1)
    writer = frame.write.format("penstock").option("kafka.bootstrap.servers", kafka)
    writer.option("topic", "ours").mode("append").save()
    rig.produce(kafka, "theirs", [Record(key=key, value=value) for key, value in rows])
    ours, theirs = (
        [(one.partition, one.offset, one.key, one.value) for one in stored(kafka, topic)]
        for topic in ("ours", "theirs")
    )
    assert ours == theirs


@pytest.mark.slow
def test_the_data_source_passes_over_what_was_aborted(spark: SparkSession, kafka: str) -> None:
    create(kafka, "transactions")
    settings = {"bootstrap.servers": kafka, "transactional.id": "one", **JAVA_PARTITIONER}
    producer = Producer(settings)
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("transactions", str(number).encode(), partition=partition)
        producer.flush(60)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", kafka)
    reader = reader.option("subscribe", "transactions")
    assert values(reader.load()) == sorted(["0", "1", "2", "3", "4", "5"] * PARTITIONS)
    committed = reader.option("kafka.isolation.level", "read_committed")
    assert values(committed.load()) == sorted(["0", "2", "4"] * PARTITIONS)


def test_a_topic_moves_to_penstock(
    spark: SparkSession, kafka: str, contents: list[Stored], broker: Broker, tmp_path: Path
) -> None:
    archive(spark, kafka, "shapes", tmp_path)
    verdict = verify(tmp_path)
    assert (verdict.findings, verdict.rows) == ((), len(contents))
    records, _ = replay(spark, broker.bootstrap, tmp_path, "from-apache-kafka")
    assert records == len(contents)
    assert stored(broker.bootstrap, "from-apache-kafka") == contents


def create(bootstrap: str, topic: str) -> None:
    settings = {"retention.ms": "-1"}
    Admin(bootstrap).topics.create(topic, partitions=PARTITIONS, settings=settings)


def as_stored(row: Row) -> Stored:
    headers = [
        (one.key, None if one.value is None else bytes(one.value)) for one in row.headers or []
    ]
    return Stored(
        partition=row.partition,
        offset=row.offset,
        key=None if row.key is None else bytes(row.key),
        value=None if row.value is None else bytes(row.value),
        headers=headers,
        timestamp_ms=round(row.timestamp.timestamp() * 1_000),
    )


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.collect())
