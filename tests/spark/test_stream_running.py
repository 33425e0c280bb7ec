"""Streams that go on: live topics, new topics and partitions, held-back batches, deleted topics."""

import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.e2e.conftest import MakeTopic, create_topic
from tests.e2e.processes import Broker
from tests.spark.conftest import Produce
from tests.spark.reading import Admin, last_line, live_producer, planned_end, stream
from tests.spark.rig import Output, Record, started, wait_for_query
from tests.waiting import wait_until


def test_a_live_topic_is_read_from_its_end_and_nothing_is_skipped(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    topic = make_topic(partitions=2)
    frame = stream(spark, broker.bootstrap, subscribe=topic, startingOffsets="latest")
    output = Output(tmp_path)
    produce(topic, [Record(partition=0), Record(partition=1)] * 10)

    with live_producer(broker.bootstrap, topic, partitions=2):
        query = output.start(frame)
        wait_for_query(query, "batches", lambda: len(query.recentProgress) >= 4)
    produce(topic, [Record(value=b"last", partition=0), Record(value=b"last", partition=1)])
    wait_for_query(query, "the last records", lambda: count_last(output, frame) == 2)
    query.stop()

    start = planned_end(output)["@start"][topic]
    for partition in (0, 1):
        found = [row.offset for row in output.rows(frame) if row.partition == partition]
        begin = start[str(partition)]
        assert begin >= 10, "what was there before the query is not for it"
        assert found == list(range(begin, begin + len(found)))
        assert len(found) > 1


def count_last(output: Output, frame: DataFrame) -> int:
    return sum(row.value == b"last" for row in output.rows(frame))


def test_new_topics_partitions_and_deleted_topics_while_running(
    spark: SparkSession, broker: Broker, produce: Produce, tmp_path: Path
) -> None:
    family = f"family-{uuid.uuid4().hex[:8]}"
    old = create_topic(broker.bootstrap, f"{family}-old")
    doomed = create_topic(broker.bootstrap, f"{family}-doomed")
    admin = Admin(broker.bootstrap)
    frame = stream(
        spark,
        broker.bootstrap,
        subscribePattern=f"{family}-.*",
        startingOffsets="latest",
        failOnDataLoss="false",
    )
    output = Output(tmp_path)
    query = output.start(frame)

    def has(*expected: tuple[str, int, int]) -> None:
        wanted = set(expected)
        wait_for_query(query, f"{wanted}", lambda: wanted <= found())

    def found() -> set[tuple[str, int, int]]:
        return {(row.topic, row.partition, row.offset) for row in output.rows(frame)}

    try:
        wait_for_query(query, "the first batch", lambda: bool(query.recentProgress))
        produce(old, [b"1"])
        produce(doomed, [b"1"])
        has((old, 0, 0), (doomed, 0, 0))
        fresh = create_topic(broker.bootstrap, f"{family}-new")
        produce(fresh, [b"1", b"2"])
        admin.grow(old, 2)
        produce(old, [Record(partition=1)])
        has((fresh, 0, 0), (fresh, 0, 1), (old, 1, 0))
        admin.delete(doomed)
        produce(old, [Record(partition=0)])
        has((old, 0, 1))
        assert len(output.rows(frame)) == 6
    finally:
        query.stop()


def test_a_topic_deleted_while_the_query_runs_ends_it_with_a_sentence(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, [b"1"] * 3)
    frame = stream(spark, broker.bootstrap, subscribe=topic, startingOffsets="earliest")
    query = started(frame.writeStream.format("noop").start)
    wait_for_query(query, "rows", lambda: any(p.numInputRows for p in query.recentProgress))

    Admin(broker.bootstrap).delete(topic)

    wait_until("the end of the query", lambda: not query.isActive)
    error = query.exception()
    assert error is not None
    line = last_line(error)
    assert f"Partition 0 of topic {topic} is gone" in line
    assert line.endswith("with the option failOnDataLoss=false the query would continue.")


def test_a_batch_is_held_back_until_it_is_large_enough(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, [b"1"])
    frame = stream(
        spark,
        broker.bootstrap,
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger=4,
        maxTriggerDelay="10m",
    )
    writer = frame.writeStream.format("noop").trigger(processingTime="100 milliseconds")
    query = started(writer.start)

    def sizes() -> list[int]:
        return [p.numInputRows for p in query.recentProgress if p.numInputRows]

    try:
        wait_for_query(query, "the first batch, which never waits", lambda: sizes() == [1])
        produce(topic, [b"2", b"3"])
        produce(topic, [b"4", b"5"])
        wait_for_query(query, "the second batch", lambda: sizes() == [1, 4])
    finally:
        query.stop()
