"""Streams with Trigger.AvailableNow: limits, restarts, new partitions, progress for all to see."""

import json
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.spark import offsets_behind
from tests.e2e.commands import Shell
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.conftest import Produce
from tests.spark.reading import (
    Admin,
    change_planned_end,
    forget_last_batch,
    last_line,
    planned_end,
    stream,
)
from tests.spark.rig import Output, Record, finish, started


def test_limits_restart_new_partitions_and_progress(
    spark: SparkSession,
    broker: Broker,
    make_topic: MakeTopic,
    produce: Produce,
    group: str,
    tmp_path: Path,
) -> None:
    topic = make_topic(partitions=2)
    produce(topic, [Record(partition=0)] * 9 + [Record(partition=1)] * 3)
    # Also sees to it that the group has a coordinator: a query waits only seconds for one.
    assert committed(broker, group, topic, 2) == [OFFSET_INVALID] * 2
    frame = stream(
        spark,
        broker.bootstrap,
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=4,
        commitGroup=group,
    )
    output = Output(tmp_path)

    first = output.start(frame, availableNow=True)
    finish(first)

    sizes = [progress.numInputRows for progress in first.recentProgress if progress.numInputRows]
    assert sum(sizes) == 12
    assert max(sizes) <= 5
    # Three of a batch's four offsets go to the partition that has three times as much.
    assert planned_end(output) == {
        "@start": {topic: {"0": 0, "1": 0}},
        topic: {"0": 3, "1": 1},
    }
    assert planned_end(output, 1).keys() == {topic}
    source = first.recentProgress[0].sources[0]
    assert json.loads(source.latestOffset) == {topic: {"0": 9, "1": 3}}
    assert offsets_behind(first.recentProgress[0]) == {topic: {"0": 6, "1": 2}}
    assert offsets_behind(first.recentProgress[0].json) == {topic: {"0": 6, "1": 2}}
    assert committed(broker, group, topic, 2) == [9, 3]
    assert lag(broker, group) == {0: 0, 1: 0}

    Admin(broker.bootstrap).grow(topic, 3)
    produce(topic, [Record(partition=2)] * 2 + [Record(partition=0)] * 3)
    assert lag(broker, group)[0] == 3
    second = output.start(frame, availableNow=True)
    finish(second)

    expected = [(0, n) for n in range(12)] + [(1, n) for n in range(3)] + [(2, n) for n in range(2)]
    assert [(row.partition, row.offset) for row in output.rows(frame)] == expected
    assert committed(broker, group, topic, 3) == [12, 3, 2]
    assert sum(lag(broker, group).values()) == 0

    # A batch that was not finished is repeated, and not twice in the output.
    produce(topic, [Record(partition=1)])
    finish(output.start(frame, availableNow=True))
    forget_last_batch(output)
    finish(output.start(frame, availableNow=True))
    assert [(row.partition, row.offset) for row in output.rows(frame)] == sorted(
        [*expected, (1, 3)]
    )


def committed(broker: Broker, group: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    places = [TopicPartition(topic, number) for number in range(partitions)]
    found = [each.offset for each in consumer.committed(places, timeout=120)]
    consumer.close()
    return found


def lag(broker: Broker, group: str) -> dict[int, int]:
    found = Shell(broker.bootstrap).json("group", "describe", group)
    return {each["partition"]: each["lag"] for each in found["offsets"]}


def test_a_first_batch_that_died_is_repeated_from_where_it_began(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    topic = make_topic()
    produce(topic, [b"before"] * 5)
    frame = stream(spark, broker.bootstrap, subscribe=topic, startingOffsets="latest")
    output = Output(tmp_path)
    finish(output.start(frame, availableNow=True))
    end = planned_end(output)
    assert end == {"@start": {topic: {"0": 5}}, topic: {"0": 5}}

    # By now the latest offset is 10, and a start that is asked for again would be there.
    produce(topic, [b"after"] * 5)
    forget_last_batch(output)
    finish(output.start(frame, availableNow=True))
    assert [row.offset for row in output.rows(frame)] == [5, 6, 7, 8, 9]

    forget_last_batch(output)
    (output.checkpoint / "offsets" / "1").unlink()
    forget_last_batch(output)
    change_planned_end(output, {topic: {"0": 7}})
    failed = output.start(frame, availableNow=True)
    with pytest.raises(PySparkException) as caught:
        finish(failed)
    assert "does not say where it started" in last_line(caught.value)
    assert last_line(caught.value).endswith(".")


def test_retention_that_overtook_the_query_is_told_or_passed_over(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    topic = make_topic()
    produce(topic, [b"value"] * 4)
    output = Output(tmp_path)
    careful, careless = (
        stream(
            spark,
            broker.bootstrap,
            subscribe=topic,
            startingOffsets="earliest",
            failOnDataLoss=fails,
        )
        for fails in ("true", "false")
    )
    finish(output.start(careful, availableNow=True))
    produce(topic, [b"value"] * 6)
    Admin(broker.bootstrap).delete_records(topic, 0, before=7)

    query = output.start(careful, availableNow=True)
    with pytest.raises(PySparkException) as caught:
        finish(query)
    line = last_line(caught.value)
    assert f"partition 0 of topic {topic} from offset 4 up to 7 were deleted" in line
    assert line.endswith("with the option failOnDataLoss=false the query would continue.")

    finish(output.start(careless, availableNow=True))
    assert [row.offset for row in output.rows(careful)] == [0, 1, 2, 3, 7, 8, 9]


def test_trigger_once_reads_everything_whatever_the_limits(
    spark: SparkSession, broker: Broker, make_topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    topic = make_topic()
    produce(topic, [b"value"] * 7)
    frame = stream(
        spark,
        broker.bootstrap,
        subscribe=topic,
        startingOffsets=f'{{"{topic}": {{"0": 1}}}}',
        maxOffsetsPerTrigger=2,
        minPartitions=3,
        includeHeaders="true",
        columns="offset",
    )

    query = Output(tmp_path).start(frame, once=True)
    finish(query)

    assert [progress.numInputRows for progress in query.recentProgress] == [6]
    assert frame.columns == ["offset", "headers"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "no-such-topic"}, "Topic no-such-topic does not exist."),
        ({"subscribe": "t", "maxOffsetsPerTriger": "5"}, "maxOffsetsPerTrigger"),
    ],
)
def test_what_can_not_be_streamed_is_said_in_one_sentence(
    spark: SparkSession, broker: Broker, tmp_path: Path, options: dict[str, str], sentence: str
) -> None:
    def run() -> None:
        frame = stream(spark, broker.bootstrap, **options)
        finish(started(frame.writeStream.format("noop").trigger(availableNow=True).start))

    with pytest.raises(PySparkException) as caught:
        run()

    line = last_line(caught.value)
    assert sentence in line
    assert line.endswith((".", "?"))
