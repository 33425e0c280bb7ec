"""Proves what a topic sink refuses before it starts, and which columns make up its records."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.pipelines.sinks.records import RecordShape, record_shape
from penstock.pipelines.sinks.sink import SinkRefused
from penstock.pipelines.sinks.topic_sink import TopicWriter

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "alerts"}


def columns(text: str) -> StructType:
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    kinds = {
        "STRING": StringType(),
        "BINARY": BinaryType(),
        "DOUBLE": DoubleType(),
        "INT": IntegerType(),
        "TIMESTAMP": TimestampType(),
        "HEADERS": ArrayType(header),
        "INTS": ArrayType(IntegerType()),
    }
    parts = [part.split() for part in text.split(",")]
    return StructType([StructField(name, kinds[kind]) for name, kind in parts])


def shape(text: str, key: str | None = None, *, has_topic: bool = True) -> RecordShape:
    return record_shape(columns(text), key=key, has_topic=has_topic)


def test_rows_with_a_value_go_as_they_are() -> None:
    found = shape("key BINARY, value STRING, headers HEADERS, partition INT, other INT")
    assert found.in_json == ()
    assert found.key is None
    assert found.schema().names == ["key", "value", "headers", "partition", "other"]


def test_a_key_that_is_named_wins_over_a_column_of_that_name() -> None:
    found = shape("key BINARY, value STRING, sensor INT", "sensor")
    assert found.schema().names == ["value", "sensor", "key"]
    assert found.schema()["key"].dataType.simpleString() == "string"
    assert shape("key BINARY, value STRING", "key").schema()["key"].dataType.simpleString() == (
        "binary"
    )


def test_other_rows_become_json_without_what_a_record_has_a_place_for() -> None:
    found = shape("sensor STRING, value DOUBLE, key BINARY, headers HEADERS, topic STRING")
    assert found.in_json == ("sensor", "value", "topic")
    assert found.key == "key"
    assert sorted(found.schema().names) == ["headers", "key", "value"]
    routed = shape("sensor STRING, topic STRING", "sensor", has_topic=False)
    assert routed.in_json == ("sensor",)
    assert routed.schema().names == ["topic", "key", "value"]
    # A decoded record's partition is that of another topic.
    assert shape("a INT, partition INT, headers INT").in_json == ("a", "partition", "headers")
    assert shape("a INT, timestamp TIMESTAMP").schema().names == ["timestamp", "value"]


@pytest.mark.parametrize(
    ("options", "key", "schema", "sentence"),
    [
        ({}, "sensr", "sensor STRING", "'sensr', which the rows do not have; the nearest is sens"),
        ({}, "a", "a INTS", "'a' can't be the key of records, because it is of type array<int>."),
        (
            {},
            None,
            "key STRING",
            "no column that could be a record's value: their columns are key.",
        ),
        ({"topik": "x"}, None, "a INT", "There is no option topik; the nearest is topic."),
        ({"kafka.acks": "two"}, None, "a INT", 'not "two".'),
        ({"topic": "a b"}, None, "a INT", "The option topic must be a name"),
        ({"includeTimestamp": "true"}, None, "a INT", 'has no column "timestamp"'),
        ({}, None, "value STRING, partition STRING", 'The column "partition" must be of type int'),
    ],
)
def test_what_can_be_known_to_fail_is_refused_before_the_start(
    options: dict[str, str], key: str | None, schema: str, sentence: str
) -> None:
    with pytest.raises(SinkRefused) as refused:
        TopicWriter(OPTIONS | options, key).prepare(columns(schema))
    assert sentence in str(refused.value)
    assert str(refused.value).endswith(".")


def test_a_sink_needs_a_topic_and_a_broker() -> None:
    TopicWriter(OPTIONS, "sensor").prepare(columns("sensor STRING, a INT"))
    TopicWriter({"Topic": "x", **OPTIONS}).prepare(columns("a INT"))
    with pytest.raises(SinkRefused, match="No topic is named"):
        TopicWriter({"kafka.bootstrap.servers": "x:1"}).prepare(columns("a INT"))
    with pytest.raises(SinkRefused, match="bootstrap"):
        TopicWriter({"topic": "alerts"}).prepare(columns("a INT"))


def test_a_topic_forgets_who_wrote_it() -> None:
    assert TopicWriter(OPTIONS).queries_before("iot", "alerts") == frozenset()
    TopicWriter(OPTIONS).clear()
