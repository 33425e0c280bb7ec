"""Proves that `df.write.format("penstock")` puts every row where it belongs, as it was given."""

import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.settings import WireSettings
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from tests.e2e.clients import CODECS
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.conftest import Produce
from tests.spark.rig import Record
from tests.spark.topic_contents import stored

HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def write(frame: DataFrame, broker: Broker, topic: str | None = None, **options: Any) -> None:
    writer = frame.write.format("penstock").mode("append")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
    if topic is not None:
        writer = writer.option("topic", topic)
    writer.options(**options).save()


def test_keys_go_where_kafkas_java_producer_puts_them(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, produce: Produce
) -> None:
    ours, theirs = make_topic(partitions=7), make_topic(partitions=7)
    frame = spark.range(3000).selectExpr("concat('key-', id) AS key", "'' AS value")
    write(frame, broker, ours)
    produce(theirs, [Record(b"", key=b"key-%d" % number) for number in range(3000)])
    places = [
        {record.key: record.partition for record in stored(broker.bootstrap, topic)}
        for topic in (ours, theirs)
    ]
    assert len(places[0]) == 3000
    assert places[0] == places[1]


def test_rows_of_a_key_keep_their_order(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=5)
    frame = spark.range(0, 50_000, 1, 1).selectExpr(
        "string(id % 100) AS key", "string(id) AS value"
    )
    write(frame, broker, topic)
    rows_of: dict[bytes | None, list[int]] = defaultdict(list)
    for record in stored(broker.bootstrap, topic):
        rows_of[record.key].append(int(record.value or b""))
    assert len(rows_of) == 100
    assert all(numbers == sorted(numbers) for numbers in rows_of.values())
    assert sum(map(len, rows_of.values())) == 50_000


def test_nulls_and_empty_bytes_are_kept_apart(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    pairs = [(None, None), (b"", b""), (b"key", None), (None, b"value"), (b"\x00\xff", b"\xfe")]
    rows = [(bytearray(k) if k is not None else None, v) for k, v in pairs]
    frame = spark.createDataFrame(rows, "key BINARY, value BINARY").coalesce(1)
    write(frame, broker, topic)
    found = [(record.key, record.value) for record in stored(broker.bootstrap, topic)]
    assert sorted(found, key=repr) == sorted(pairs, key=repr)


def test_headers_keep_order_duplicates_nulls_and_empty_values(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    given: list[tuple[str, list[tuple[str, bytes | None]] | None]] = [
        ("1", [("b", b"2"), ("a", b"1"), ("b", None), ("b", b""), ("", b"unnamed")]),
        ("2", []),
        ("3", None),
        ("4", [("größe", b"\xff\x00")]),
    ]
    frame = spark.createDataFrame(given, f"value STRING, {HEADERS}").coalesce(1)
    write(frame, broker, topic)
    found = {record.value: record.headers for record in stored(broker.bootstrap, topic)}
    assert found == {value.encode(): headers or [] for value, headers in given}


# What the encoder makes with each of them is told by tests/unit/columns/test_encoding.py.
@pytest.mark.parametrize(
    "codec",
    [
        "lz4",
        *(pytest.param(codec, marks=pytest.mark.soak) for codec in CODECS if codec != "lz4"),
    ],
)
def test_each_codec_is_written(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic()
    frame = spark.range(0, 2000, 1, 1).selectExpr("repeat(string(id), 20) AS value")
    write(frame, broker, topic, **{"kafka.compression.type": codec})
    found = [record.value for record in stored(broker.bootstrap, topic)]
    assert found == [b"%d" % number * 20 for number in range(2000)]
    with WireCluster(WireSettings(bootstrap=broker.bootstrap)) as cluster:
        header = cluster.peek(TopicPartition(TopicName(topic), PartitionIndex(0)), 0)
    assert header is not None
    assert header.codec.name.lower() == codec


def test_rows_name_their_topic_and_their_partition(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    small, large = make_topic(partitions=1), make_topic(partitions=9)
    frame = spark.range(100).selectExpr(
        "string(id) AS value",
        f"CASE WHEN id % 2 = 0 THEN '{small}' ELSE '{large}' END AS topic",
        "CASE WHEN id % 2 = 0 THEN 0 ELSE int(id % 9) END AS partition",
        "id AS left_out",
    )
    write(frame, broker)
    assert len(stored(broker.bootstrap, small)) == 50
    places = [
        (record.partition, int(record.value or b"")) for record in stored(broker.bootstrap, large)
    ]
    assert sorted(places) == sorted((number % 9, number) for number in range(1, 100, 2))


def test_the_option_wins_over_the_topic_column(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    write(spark.createDataFrame([("x", "elsewhere")], "value STRING, topic STRING"), broker, topic)
    assert [record.value for record in stored(broker.bootstrap, topic)] == [b"x"]


def test_records_carry_the_time_of_the_write_or_the_rows_own(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    # By its own time the one row is too old for the usual retention.
    plain, own = make_topic(), make_topic(retention_ms="-1")
    moment = datetime(2024, 2, 29, 12, 30, 15, 250_000, UTC)
    frame = spark.createDataFrame([("a", moment), ("b", None)], "value STRING, timestamp TIMESTAMP")
    before_ms = time.time_ns() // 1_000_000
    write(frame, broker, plain)
    write(frame, broker, own, includeTimestamp="true")
    after_ms = time.time_ns() // 1_000_000
    assert all(before_ms <= r.timestamp_ms <= after_ms for r in stored(broker.bootstrap, plain))
    times = {record.value: record.timestamp_ms for record in stored(broker.bootstrap, own)}
    assert times[b"a"] == int(moment.timestamp() * 1000)
    assert before_ms <= times[b"b"] <= after_ms


def test_rows_without_a_key_spread_over_partitions_in_large_batches(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=4)
    frame = spark.range(0, 40_000, 1, 1).selectExpr("repeat('x', 100) AS value")
    write(frame, broker, topic)
    found = stored(broker.bootstrap, topic)
    assert len(found) == 40_000
    assert {record.partition for record in found} == {0, 1, 2, 3}


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_batches_are_cut_to_what_the_topic_takes(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(max_message_bytes="5000")
    frame = spark.range(0, 500, 1, 1).selectExpr("unhex(sha2(string(id), 512)) AS value")
    write(frame, broker, topic, **{"kafka.compression.type": codec})
    assert len(stored(broker.bootstrap, topic)) == 500


def test_a_missing_topic_is_made_when_the_broker_permits_it(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = f"made-{tmp_path.parent.name}"
    write(spark.createDataFrame([("x",)], "value STRING"), broker, topic)
    assert [record.value for record in stored(broker.bootstrap, topic)] == [b"x"]


def test_a_parquet_file_and_a_topic_are_copied_whole(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    first, second = make_topic(partitions=3), make_topic(partitions=3)
    frame = spark.range(5000).selectExpr("string(id) AS key", "sha2(string(id), 256) AS value")
    frame.write.parquet(str(tmp_path / "rows"))
    write(spark.read.parquet(str(tmp_path / "rows")), broker, first)
    copied = (
        spark.read.format("penstock")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", first)
        .load()
    )
    write(copied, broker, second)
    contents = [
        {(r.partition, r.key, r.value) for r in stored(broker.bootstrap, topic)}
        for topic in (first, second)
    ]
    assert len(contents[0]) == 5000
    assert contents[0] == contents[1]


def test_a_frame_without_rows_needs_no_broker(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "value STRING").where(f.lit(True))
    writer = frame.write.format("penstock").mode("append")
    writer.option("kafka.bootstrap.servers", "127.0.0.1:1").option("topic", "none").save()
