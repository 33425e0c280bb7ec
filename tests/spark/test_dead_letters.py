"""Proves that rows that can't be decoded become records of a topic, with their origin."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark import dead_letters, decode, write_dead_letters
from penstock.spark.values import DecodeRefused
from tests.e2e.processes import Broker
from tests.spark.rig import Record, finish, rows, started

HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
MALFORMED = "The value is not well-formed JSON."
WRONG_FIELD = "The JSON field 'a' is not of type int."
NOW = datetime(2026, 3, 4, 5, 6, 7, 123000, UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def topic_frame(spark: SparkSession) -> DataFrame:
    """As the source gives it, with headers."""
    original = [("trace", b"1"), ("trace", None)]
    data = [
        (bytearray(b"k"), b"{", "orders", 2, 7, NOW, original),
        (None, b'{"a": 1}', "orders", 2, 8, NOW, None),
        (None, b'{"a": "x"}', "orders", 2, 9, NOW, None),
        (None, None, "orders", 2, 10, NOW, None),
    ]
    fields = (
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
        f"timestamp TIMESTAMP, headers {HEADERS}"
    )
    return spark.createDataFrame(data, fields)


def headers(row: Row) -> list[tuple[str, bytes | None]]:
    return [(each.key, None if each.value is None else bytes(each.value)) for each in row.headers]


def origin(offset: int, reason: str) -> list[tuple[str, bytes | None]]:
    return [
        ("penstock.topic", b"orders"),
        ("penstock.partition", b"2"),
        ("penstock.offset", str(offset).encode()),
        ("penstock.timestamp", str(NOW_MS).encode()),
        ("penstock.reason", reason.encode()),
    ]


def test_only_failed_rows_are_left_with_their_origin_in_headers(spark: SparkSession) -> None:
    decoded = decode(topic_frame(spark), "json", schema="a INT")
    letters = dead_letters(decoded, "orders.dead")
    assert letters.columns == ["key", "value", "headers", "topic"]
    assert letters.schema["headers"].dataType.simpleString() == (
        "array<struct<key:string,value:binary>>"
    )
    first, second = sorted(letters.collect(), key=lambda row: len(row.value))
    assert (bytes(first.key), bytes(first.value), first.topic) == (b"k", b"{", "orders.dead")
    assert headers(first) == [("trace", b"1"), ("trace", None), *origin(7, MALFORMED)]
    assert (second.key, bytes(second.value)) == (None, b'{"a": "x"}')
    assert headers(second) == origin(9, WRONG_FIELD)


def test_a_frame_may_have_no_more_than_a_value(spark: SparkSession) -> None:
    values = spark.createDataFrame([(b"\xff",), (b"x",)], "body BINARY")
    decoded = decode(values, "text", column="body", error="why")
    (letter,) = dead_letters(decoded, value="body", error="why").collect()
    assert letter.asDict().keys() == {"value", "headers"}
    assert headers(letter) == [("penstock.reason", b"The value is not valid UTF-8.")]


def test_wrong_arguments_are_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    plain = topic_frame(spark)
    decoded = decode(plain, "text")
    with pytest.raises(DecodeRefused, match=r"no column 'decode_error'; it has: key, value"):
        dead_letters(plain, "dead")
    with pytest.raises(DecodeRefused, match=r"The topic for dead letters has no name."):
        dead_letters(decoded, "")
    with pytest.raises(DecodeRefused, match=r"'partition' is int, not binary or string."):
        dead_letters(decoded, "dead", value="partition")
    with pytest.raises(DecodeRefused, match=r"'headers' is string, not array"):
        dead_letters(decoded.drop("headers").selectExpr("*", "'x' AS headers"), "dead")
    with pytest.raises(DecodeRefused, match=r"are for streams, and this DataFrame is not one."):
        write_dead_letters(decoded, topic="dead", bootstrap="127.0.0.1:1", checkpoint="x")
    stream = decode(spark.readStream.format("rate").load().selectExpr("'x' AS value"), "text")
    with pytest.raises(DecodeRefused, match=r"needs checkpoint=, its own folder."):
        write_dead_letters(stream, topic="dead", bootstrap="127.0.0.1:1")


def test_dead_letters_go_from_a_topic_to_a_topic(
    spark: SparkSession,
    broker: Broker,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    tmp_path: Path,
) -> None:
    source, dead = make_topic(partitions=2), make_topic(partitions=1)
    records = [
        Record(b'{"a": 1}', key=b"good", partition=0),
        Record(b"{", key=b"bad", headers=[("trace", b"7")], partition=1, timestamp_ms=NOW_MS),
        Record(None, key=b"tombstone", partition=1),
    ]
    produce(source, records)
    where = {"kafka.bootstrap.servers": broker.bootstrap, "includeHeaders": "true"}

    batch = spark.read.format("penstock").options(**where, subscribe=source).load()
    decoded = decode(batch, "json", schema="a INT")
    assert write_dead_letters(decoded, topic=dead, bootstrap=broker.bootstrap) is None

    stream = spark.readStream.format("penstock").options(**where, subscribe=source)
    stream_decoded = decode(
        stream.option("startingOffsets", "earliest").load(), "json", schema="a INT"
    )

    def start() -> StreamingQuery:
        query = write_dead_letters(
            stream_decoded,
            topic=dead,
            bootstrap=broker.bootstrap,
            checkpoint=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
        )
        assert query is not None
        return query

    finish(started(start))

    letters = rows(spark.read.format("penstock").options(**where, subscribe=dead).load())
    assert len(letters) == 2
    for letter in letters:
        assert (bytes(letter.key), bytes(letter.value)) == (b"bad", b"{")
        assert headers(letter) == [
            ("trace", b"7"),
            ("penstock.topic", source.encode()),
            ("penstock.partition", b"1"),
            ("penstock.offset", b"0"),
            ("penstock.timestamp", str(NOW_MS).encode()),
            ("penstock.reason", MALFORMED.encode()),
        ]
