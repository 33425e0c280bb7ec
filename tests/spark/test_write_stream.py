"""Proves that a streaming query into topics loses nothing, over restarts and failures."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import penstock.spark
from penstock.spark.writing.errors import InputError
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.reading import last_line
from tests.spark.rig import QUERY_TIMEOUT_S, finish, started
from tests.spark.topic_contents import stored

ROWS = "value STRING, partition INT"


class Inbox:
    """A folder of files that a query reads as a stream, each file once."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        folder.mkdir()
        self.stream = (
            spark.readStream.schema(ROWS).option("maxFilesPerTrigger", 1).json(str(folder))
        )

    def put(self, name: str, *rows: tuple[str, int | None]) -> None:
        lines = [
            f'{{"value": "{value}"}}'
            if partition is None
            else f'{{"value": "{value}", "partition": {partition}}}'
            for value, partition in rows
        ]
        hidden = self._folder / f".{name}"
        hidden.write_text("\n".join(lines))
        hidden.rename(self._folder / f"{name}.json")


@pytest.fixture
def inbox(spark: SparkSession, tmp_path: Path) -> Inbox:
    return Inbox(spark, tmp_path / "inbox")


def start(
    frame: DataFrame,
    bootstrap: str,
    topic: str,
    checkpoint: Path,
    mode: str = "append",
    **options: Any,
) -> StreamingQuery:
    writer = frame.writeStream.format("penstock").outputMode(mode)
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    writer = writer.option("checkpointLocation", str(checkpoint)).options(**options)
    return started(writer.trigger(availableNow=True).start)


def values(broker: Broker, topic: str) -> Counter[bytes | None]:
    return Counter(record.value for record in stored(broker.bootstrap, topic))


def test_a_query_goes_on_from_its_checkpoint(
    inbox: Inbox, broker: Broker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(partitions=3)
    inbox.put("first", *((f"a{number}", None) for number in range(100)))
    inbox.put("second", *((f"b{number}", None) for number in range(100)))
    finish(start(inbox.stream, broker.bootstrap, topic, tmp_path / "checkpoint"))
    assert values(broker, topic).total() == 200
    inbox.put("third", ("c", 2))
    finish(start(inbox.stream, broker.bootstrap, topic, tmp_path / "checkpoint"))
    found = values(broker, topic)
    assert len(found) == 201
    assert set(found.values()) == {1}


def test_a_batch_that_failed_is_written_whole_by_the_next_run(
    inbox: Inbox, broker: Broker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(partitions=1)
    inbox.put("first", ("a", 0))
    inbox.put("second", ("b", 0), ("c", 1), ("d", 0))
    failing = start(inbox.stream, broker.bootstrap, topic, tmp_path / "checkpoint")
    with pytest.raises(StreamingQueryException) as failed:
        failing.awaitTermination(QUERY_TIMEOUT_S)
    assert last_line(failed.value).endswith(
        f"A row asks for partition 1 of topic {topic}, whose partitions are numbered from 0 to 0."
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(timeout=30)
    finish(start(inbox.stream, broker.bootstrap, topic, tmp_path / "checkpoint"))
    assert set(values(broker, topic)) == {b"a", b"b", b"c", b"d"}


def test_the_mode_complete_appends_the_whole_result_each_time(
    inbox: Inbox, broker: Broker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic()
    counted = (
        inbox.stream.groupBy("value").count().selectExpr("value AS key", "string(count) AS value")
    )
    inbox.put("first", ("a", None), ("a", None), ("b", None))
    finish(start(counted, broker.bootstrap, topic, tmp_path / "checkpoint", mode="complete"))
    inbox.put("second", ("b", None))
    finish(start(counted, broker.bootstrap, topic, tmp_path / "checkpoint", mode="complete"))
    found = Counter((record.key, record.value) for record in stored(broker.bootstrap, topic))
    assert found == {(b"a", b"2"): 2, (b"b", b"1"): 1, (b"b", b"2"): 1}


def test_what_has_changed_is_written_by_a_function_since_spark_refuses_the_mode_update(
    inbox: Inbox, broker: Broker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic()
    counted = (
        inbox.stream.groupBy("value").count().selectExpr("value AS key", "string(count) AS value")
    )
    inbox.put("first", ("a", None), ("a", None), ("b", None))
    with pytest.raises(StreamingQueryException, match="does not support Update mode"):
        finish(start(counted, broker.bootstrap, topic, tmp_path / "refused", mode="update"))

    def update() -> StreamingQuery:
        return penstock.spark.write_updates(
            counted,
            bootstrap=broker.bootstrap,
            topic=topic,
            checkpoint=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
        )

    finish(started(update))
    inbox.put("second", ("b", None))
    finish(started(update))
    found = Counter((record.key, record.value) for record in stored(broker.bootstrap, topic))
    assert found == {(b"a", b"2"): 1, (b"b", b"1"): 1, (b"b", b"2"): 1}
    with pytest.raises(InputError, match='no column "value"'):
        penstock.spark.write_updates(counted.select("key"), bootstrap="x:1", topic=topic)


def test_a_topic_flows_into_another_one(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, tmp_path: Path, produce: Any
) -> None:
    source, target = make_topic(partitions=2), make_topic(partitions=2)
    for batch in range(2):
        produce(source, [b"%d-%d" % (batch, number) for number in range(500)])
        stream = (
            spark.readStream.format("penstock")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .load()
        )
        finish(start(stream, broker.bootstrap, target, tmp_path / "checkpoint"))
    assert values(broker, target) == values(broker, source)
    assert values(broker, target).total() == 1000
