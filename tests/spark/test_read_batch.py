"""Batch reads: rows, columns, codecs, bounds, splits and conditions on a plain session."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial, reduce

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from penstock.spark import dead_letters, decode
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.conftest import Produce
from tests.spark.reading import batch, last_line, offsets
from tests.spark.rig import Record, rows

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# An hour ago, in whole seconds: retention would take records that are older than a week.
T0_MS = (int(time.time()) - 3600) * 1000
NUMBERS = [b"%d" % number for number in range(10)]

Read = Callable[..., DataFrame]


@pytest.fixture
def read(spark: SparkSession, broker: Broker) -> Read:
    """`read(subscribe=..., ...)` on the shared broker."""
    return partial(batch, spark, broker.bootstrap)


def test_rows_are_what_was_produced_with_every_codec_null_and_header(
    read: Read, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(partitions=2)
    records = [
        Record(value=b"v", key=b"k", timestamp_ms=T0_MS, partition=0),
        Record(value=None, key=b"tombstone", timestamp_ms=T0_MS + 1, partition=0),
        Record(value=b"", key=b"", timestamp_ms=T0_MS + 2, partition=0),
        Record(
            value="Gruß".encode(),
            headers=[("a", b"1"), ("a", None), ("ü", b""), ("b", b"\x00\xff")],
            timestamp_ms=T0_MS + 3,
            partition=1,
        ),
    ]
    for codec in CODECS:
        produce(topic, records, codec=codec)

    frame = read(subscribe=topic, includeHeaders=True)
    found = rows(frame)

    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    expected = [
        (partition, record)
        for partition in (0, 1)
        for _ in CODECS
        for record in records
        if record.partition == partition
    ]
    assert len(found) == len(expected)
    for row, (partition, record) in zip(found, expected, strict=True):
        assert (row.topic, row.partition, row.timestampType) == (topic, partition, 0)
        assert (row.key, row.value) == (record.key, record.value)
        assert row.timestamp.astimezone(UTC) == _time(record.timestamp_ms)
        assert _pairs(row.headers) == list(record.headers)
    assert offsets(frame) == [(0, n) for n in range(15)] + [(1, n) for n in range(5)]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.timestampType", "TIMESTAMP_NTZ"),
        ("spark.sql.ansi.enforceReservedKeywords", "true"),
    ],
)
def test_columns_are_the_same_whatever_a_session_makes_of_types_and_names(
    spark: SparkSession,
    read: Read,
    make_topic: MakeTopic,
    produce: Produce,
    setting: str,
    value: str,
) -> None:
    topic = make_topic()
    produce(topic, [Record(value=b"\xff", timestamp_ms=T0_MS)])
    spark.conf.set(setting, value)
    try:
        frame = read(subscribe=topic, includeHeaders=True)
        assert dict(frame.dtypes)["timestamp"] == "timestamp"
        (letter,) = rows(dead_letters(decode(frame, "text")))
    finally:
        spark.conf.unset(setting)
    assert ("penstock.timestamp", str(T0_MS).encode()) in _pairs(letter.headers)


def _time(timestamp_ms: int | None) -> datetime:
    assert timestamp_ms is not None
    return datetime.fromtimestamp(timestamp_ms // 1000, UTC).replace(
        microsecond=timestamp_ms % 1000 * 1000
    )


def _pairs(headers: list[object] | None) -> list[tuple[str, bytes | None]]:
    return [(each.key, each.value) for each in headers or []]


def test_log_append_time_comes_from_the_broker(
    read: Read, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    produce(topic, [Record(timestamp_ms=T0_MS)])

    [row] = read(subscribe=topic).collect()

    assert row.timestampType == 1
    assert row.timestamp.astimezone(UTC) > _time(T0_MS)


def test_only_the_columns_named_are_read_in_their_order(
    read: Read, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, [Record(value=b"large" * 100, key=b"k", headers=[("h", b"1")])])

    frame = read(subscribe=topic, columns="offset, key,headers")

    assert frame.columns == ["offset", "key", "headers"]
    [row] = frame.collect()
    assert (row.offset, row.key, _pairs(row.headers)) == (0, b"k", [("h", b"1")])
    assert read(subscribe=topic, columns="timestampType").collect()[0].timestampType == 0
    assert read(subscribe=topic).select("offset").count() == 1


def test_bounds_by_offset_and_by_time(read: Read, make_topic: MakeTopic, produce: Produce) -> None:
    topic, other = make_topic(partitions=2), make_topic()
    for partition in (0, 1):
        produce(
            topic,
            [
                Record(value=value, partition=partition, timestamp_ms=T0_MS + 1000 * number)
                for number, value in enumerate(NUMBERS)
            ],
        )
    produce(other, [b"other"])
    at = {"startingOffsets": f'{{"{topic}": {{"0": 7, "1": -2}}}}'}
    until = {"endingOffsets": f'{{"{topic}": {{"0": -1, "1": 2}}}}'}
    by_time = f'{{"{topic}": {{"0": {T0_MS + 8000}, "1": {T0_MS + 9000}}}}}'

    assert offsets(read(subscribe=topic, **at, **until)) == [
        (0, 7), (0, 8), (0, 9), (1, 0), (1, 1),
    ]  # fmt: skip
    assert offsets(
        read(subscribe=topic, startingTimestamp=T0_MS + 7500, endingTimestamp=T0_MS + 9000)
    ) == [(0, 8), (1, 8)]
    assert offsets(read(subscribe=topic, startingOffsetsByTimestamp=by_time)) == [
        (0, 8), (0, 9), (1, 9),
    ]  # fmt: skip
    assert len(offsets(read(subscribe=topic, endingOffsetsByTimestamp=by_time))) == 17
    assert (
        offsets(
            read(
                subscribe=topic,
                startingTimestamp=T0_MS + 99_000,
                startingOffsetsByTimestampStrategy="latest",
            )
        )
        == []
    )
    assert offsets(read(assign=f'{{"{topic}": [1]}}', startingOffsets="earliest")) == [
        (1, n) for n in range(10)
    ]
    both = read(subscribe=f"{topic},{other}", endingOffsets="latest")
    assert {row.topic for row in both.select("topic").collect()} == {topic, other}
    by_pattern = read(subscribePattern=f"{topic[:-1]}.")
    assert by_pattern.count() == 20
    assert read(subscribePattern="no-such-topic-.*").count() == 0


def test_split_partitions_hold_each_record_once(
    read: Read, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(partitions=2)
    produce(topic, [Record(value=b"small", partition=0) for _ in range(1500)], codec="lz4")
    produce(topic, [Record(value=b"large" * 200, partition=0) for _ in range(1500)])
    produce(topic, [Record(partition=1) for _ in range(10)])
    expected = [(0, n) for n in range(3000)] + [(1, n) for n in range(10)]

    whole = read(subscribe=topic)
    by_count = read(subscribe=topic, minPartitions=6)
    small_fetches = {"kafka.max.partition.fetch.bytes": 50_000, "kafka.group.id": "any"}
    by_size = read(
        subscribe=topic, maxRecordsPerPartition=700, groupIdPrefix="any", **small_fetches
    )

    assert whole.rdd.getNumPartitions() == 2
    assert by_count.rdd.getNumPartitions() >= 5
    assert by_size.rdd.getNumPartitions() >= 6
    assert offsets(by_count) == expected
    assert offsets(by_size) == expected


def test_conditions_give_the_same_rows_with_push_down_and_without(
    read: Read, make_topic: MakeTopic, produce: Produce, spark: SparkSession
) -> None:
    topic = make_topic(partitions=3)
    for partition in range(3):
        produce(
            topic,
            [
                # Every third record is older than those before it: times are not sorted.
                Record(
                    value=value,
                    partition=partition,
                    timestamp_ms=T0_MS + 1000 * number - (5000 if number % 3 == 2 else 0),
                )
                for number, value in enumerate(NUMBERS)
            ],
        )
    conditions = {
        "partition = 1 AND offset >= 4 AND offset < 7": 3,
        "partition IN (0, 2) AND offset = 3": 2,
        "partition <> 1 AND offset IN (1, 5)": 4,
        "offset BETWEEN 2 AND 3 AND value = '2'": 3,
        f"timestamp >= timestamp_millis({T0_MS + 6000})": 9,
        f"timestamp > timestamp_millis({T0_MS + 99_000})": 0,
        f"timestamp = timestamp_millis({T0_MS + 3000}) OR offset = 9": 9,
        "partition IS NULL": 0,
        f"topic = '{topic}' AND partition <=> 2 AND key IS NULL": 10,
        "topic LIKE 'nothing%'": 0,
    }

    def answers() -> dict[str, list[tuple[int, int]]]:
        frames = [
            read(subscribe=topic, columns="topic,partition,offset,timestamp,key,value")
            .where(condition)
            .select(lit(condition).alias("condition"), "partition", "offset")
            for condition in conditions
        ]
        found: dict[str, list[tuple[int, int]]] = {condition: [] for condition in conditions}
        for row in reduce(DataFrame.unionAll, frames).collect():
            found[row.condition].append((row.partition, row.offset))
        return {condition: sorted(places) for condition, places in found.items()}

    without = answers()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed = answers()
        narrowed = read(subscribe=topic).where("partition = 1 AND offset > 5")
        tasks = narrowed.rdd.getNumPartitions()
        plan = narrowed._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    assert {each: len(found) for each, found in without.items()} == conditions
    assert pushed == without
    assert tasks == 1
    assert "Filter (" not in plan, "conditions that hold already need not be looked at again"


def test_a_temporary_view_is_a_topic_in_sql(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(partitions=2)
    produce(topic, [Record(value=value, partition=0) for value in NUMBERS])
    view = topic.replace("-", "_")
    spark.sql(
        f"CREATE TEMPORARY VIEW {view} USING penstock OPTIONS ("
        f"'kafka.bootstrap.servers' '{broker.bootstrap}', subscribe '{topic}',"
        " startingOffsets 'earliest')"
    )

    [row] = spark.sql(f"SELECT count(*) AS n, max(int(string(value))) AS top FROM {view}").collect()

    assert (row.n, row.top) == (10, 9)
    assert "offset" in spark.table(view).columns


def test_an_empty_topic_has_no_rows(read: Read, make_topic: MakeTopic) -> None:
    assert rows(read(subscribe=make_topic(partitions=3))) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "no-such-topic"}, "Topic no-such-topic does not exist."),
        ({"subscribe": "t", "startingOffset": "earliest"}, "startingOffset"),
        ({"subscribe": "t", "startingOffsets": "latest"}, "startingOffsets"),
        ({"subscribe": "t", "columns": "key,valu"}, "valu"),
        ({}, "subscribe"),
        ({"subscribe": "t", "kafka.security.protocol": "SSL"}, "security.protocol"),
        ({"subscribe": "t", "kafka.bootstrap.servers": "127.0.0.1:1"}, "127.0.0.1:1"),
    ],
)
def test_what_can_not_be_read_is_said_in_one_sentence(
    read: Read, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        read(**options).collect()

    line = last_line(caught.value)
    assert sentence in line
    assert line.endswith((".", "?"))
    assert line.count("Error") <= 1


def test_a_schema_of_ones_own_is_refused(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
    with pytest.raises(PySparkException) as caught:
        reader.option("subscribe", make_topic()).schema("value STRING").load().collect()
    assert "The schema of a topic is fixed" in last_line(caught.value)
