"""Proves that a write that fails says why in one sentence, the last of the traceback."""

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.e2e.conftest import MakeBroker, MakeTopic
from tests.e2e.processes import Broker
from tests.spark.reading import last_line


def sentence_of(frame: DataFrame, bootstrap: str, mode: str = "append", **options: Any) -> str:
    """What the failed write says, without the name of the error's type."""
    writer = frame.write.format("penstock").mode(mode)
    writer = writer.option("kafka.bootstrap.servers", bootstrap).options(**options)
    with pytest.raises(PySparkException) as failed:
        writer.save()
    return last_line(failed.value).partition(": ")[2]


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("x",)], "value STRING").coalesce(1)


def test_a_topic_is_never_overwritten(frame: DataFrame, broker: Broker) -> None:
    said = sentence_of(frame, broker.bootstrap, mode="overwrite", topic="orders")
    assert said == (
        "A topic can't be overwritten, because records can only be added to it: "
        'write with mode("append").'
    )


def test_spark_itself_names_the_mode_that_it_lacks(frame: DataFrame, broker: Broker) -> None:
    writer = frame.write.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
    with pytest.raises(PySparkException, match=r"(?i)append"):
        writer.option("topic", "orders").save()


def test_a_frame_without_a_value_is_told(spark: SparkSession, broker: Broker) -> None:
    frame = spark.createDataFrame([("x",)], "key STRING")
    said = sentence_of(frame, broker.bootstrap, topic="orders")
    assert said == 'The DataFrame has no column "value" to write: its columns are key.'


def test_a_wrong_option_is_told(frame: DataFrame, broker: Broker) -> None:
    said = sentence_of(frame, broker.bootstrap, topik="orders")
    assert "topik" in said
    assert "topic" in said


def test_a_row_without_a_topic_is_told(spark: SparkSession, broker: Broker) -> None:
    frame = spark.createDataFrame([("x", None)], "value STRING, topic STRING")
    assert sentence_of(frame, broker.bootstrap) == (
        'A row has no topic: the column "topic" is null there, and the option "topic" is not set.'
    )


def test_a_partition_beyond_the_last_one_is_told(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    frame = spark.createDataFrame([("x", 2)], "value STRING, partition INT")
    assert sentence_of(frame, broker.bootstrap, topic=topic) == (
        f"A row asks for partition 2 of topic {topic}, whose partitions are numbered from 0 to 1."
    )


def test_a_record_that_the_topic_does_not_take_is_told(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(max_message_bytes="5000")
    frame = spark.range(1).selectExpr("repeat('x', 20000) AS value")
    said = sentence_of(frame, broker.bootstrap, topic=topic)
    assert topic in said
    assert "max.message.bytes" in said
    assert said.endswith(".")


def test_nobody_at_the_address_is_told(frame: DataFrame) -> None:
    said = sentence_of(frame, "127.0.0.1:1", topic="orders")
    assert said.startswith("No broker answers at 127.0.0.1:1: ")


def test_a_missing_topic_is_told_when_the_broker_makes_none(
    frame: DataFrame, make_broker: MakeBroker
) -> None:
    lone = make_broker("--set", "auto.create.topics.enable=false").start()
    said = sentence_of(frame, lone.bootstrap, topic="orders")
    assert "orders" in said
    assert "does not exist" in said
