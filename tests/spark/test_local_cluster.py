"""Proves that the data source works where tasks run on executors, in processes of their own."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.conftest import Produce
from tests.spark.rig import Output, Record, finish, rows
from tests.spark.rig_server import SparkServer

PARTITIONS = 6
RECORDS = 3_000
EXECUTORS = 2
MEETING_S_MAX = 240.0


def records() -> list[Record | bytes]:
    return [Record(b"value-%d" % n, b"key-%d" % (n % 50)) for n in range(RECORDS)]


def topic_frame(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.option("subscribe", topic).load()


def with_process(frame: DataFrame, meeting: Path) -> DataFrame:
    """The partition of each row, and the daemon whose worker saw it: each executor has one.

    A server takes queries before all its executors have come, and the first could do all the work.
    So tasks wait until they have met those of the other executor.
    """

    def see(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (meeting / str(os.getppid())).touch()
        deadline = time.monotonic() + MEETING_S_MAX
        while len(os.listdir(meeting)) < EXECUTORS and time.monotonic() < deadline:
            time.sleep(0.05)
        for batch in batches:
            daemons = pa.array([os.getppid()] * batch.num_rows, pa.int64())
            yield pa.record_batch([batch.column("partition"), daemons], ["partition", "daemon"])

    return frame.mapInArrow(see, "partition int, daemon long")


@pytest.mark.slow
def test_both_executors_read(
    remote_spark: SparkSession,
    spark_server: SparkServer,
    broker: Broker,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    produce(topic, records())
    seen = with_process(topic_frame(remote_spark, broker, topic), tmp_path)
    found = seen.selectExpr("partition", "daemon").groupBy("partition", "daemon").count().collect()
    assert sum(row["count"] for row in found) == RECORDS
    assert {row.partition for row in found} == set(range(PARTITIONS))
    parents = {psutil.Process(row.daemon).ppid() for row in found}
    assert parents == {executor.pid for executor in spark_server.executors()}
    assert len(parents) == EXECUTORS


@pytest.mark.slow
def test_a_job_from_topic_to_topic(
    remote_spark: SparkSession, broker: Broker, make_topic: MakeTopic, produce: Produce
) -> None:
    source, sink = make_topic(partitions=PARTITIONS), make_topic(partitions=PARTITIONS)
    produce(source, records())
    writer = topic_frame(remote_spark, broker, source).select("key", "value").write
    writer = writer.format("penstock").mode("append").option("topic", sink)
    writer.option("kafka.bootstrap.servers", broker.bootstrap).save()
    columns = ("partition", "offset", "key", "value")
    before, after = (
        rows(topic_frame(remote_spark, broker, topic).select(*columns)) for topic in (source, sink)
    )
    assert after == before


def test_a_stream_that_is_started_again(
    remote_spark: SparkSession,
    broker: Broker,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    reader = remote_spark.readStream.format("penstock").option("subscribe", topic)
    reader = reader.option("kafka.bootstrap.servers", broker.bootstrap)
    frame = reader.option("startingOffsets", "earliest").load().select("partition", "offset")
    output = Output(tmp_path)
    for run in (1, 2):
        produce(topic, records())
        finish(output.start(frame, availableNow=True))
        found = output.rows(frame)
        assert len(found) == RECORDS * run
        assert len(set(found)) == len(found)
