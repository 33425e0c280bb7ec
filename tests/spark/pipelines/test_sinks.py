"""Proves that rows of a running flow reach topics, terminals and functions as they should."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock import spark as penstock_spark
from penstock.pipelines.sinks.console_sink import ConsoleWriter
from penstock.pipelines.sinks.function_sink import FunctionWriter
from penstock.pipelines.sinks.sink import Epoch, Sink, Written
from penstock.pipelines.sinks.topic_sink import TopicWriter
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.reading import batch
from tests.spark.rig import finish
from tests.spark.topic_contents import stored

MOMENT = datetime(2026, 1, 31, 12, 30, 15, 250_001, UTC)


def epoch(number: int = 0) -> Epoch:
    return Epoch(query="query", batch=number, pipeline="iot", flow="alerts")


def test_rows_become_records(spark: SparkSession, broker: Broker, make_topic: MakeTopic) -> None:
    plain, routed = make_topic(partitions=2), make_topic(partitions=3)
    bootstrap = {"kafka.bootstrap.servers": broker.bootstrap}
    rows = [(7, 20.5, MOMENT, None), (8, None, MOMENT, "x")]
    readings = spark.createDataFrame(
        rows, "`sensor.id` INT, value DOUBLE, at TIMESTAMP, note STRING"
    )
    written = write(TopicWriter({**bootstrap, "topic": plain}, "sensor.id"), readings)
    assert written == Written(rows=2)

    found = {
        record.key: json.loads(record.value or b"") for record in stored(*place(broker, plain))
    }
    assert found[b"7"] == {
        "sensor.id": 7,
        "value": 20.5,
        "at": "2026-01-31T12:30:15.250001Z",
        "note": None,
    }
    assert found[b"8"]["value"] is None
    # What was written so is read back as it was.
    decoded = penstock_spark.decode(
        batch(spark, broker.bootstrap, subscribe=plain),
        "json",
        schema="`sensor.id` INT, value DOUBLE, at TIMESTAMP, note STRING",
    )
    back = decoded.select("decoded.*").selectExpr("`sensor.id`", "value", "unix_micros(at)", "note")
    micros = int(MOMENT.timestamp()) * 1_000_000 + MOMENT.microsecond
    expected = [(7, 20.5, micros, None), (8, None, micros, "x")]
    assert sorted(tuple(row) for row in back.collect()) == expected

    records = spark.range(4).selectExpr(
        "string(id) AS key",
        "binary(string(id)) AS value",
        f"'{routed}' AS topic",
        "2 AS partition",
        "array(struct('h' AS key, binary('1') AS value)) AS headers",
    )
    assert write(TopicWriter(bootstrap), records) == Written(rows=4)
    assert [
        (record.partition, record.key, record.value, record.headers)
        for record in sorted(stored(*place(broker, routed)), key=lambda each: each.key or b"")
    ] == [(2, b"%d" % n, b"%d" % n, [("h", b"1")]) for n in range(4)]


def write(sink: TopicWriter, frame: DataFrame) -> Written:
    sink.prepare(frame.schema)
    return sink.write(frame, epoch())


def place(broker: Broker, topic: str) -> tuple[str, str]:
    return broker.bootstrap, topic


def test_a_console_shows_a_few_rows_and_all_of_them_reach_the_state(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    counts = (
        spark.readStream.schema("word STRING, raw STRING")
        .option("maxFilesPerTrigger", 1)
        .json(str(source))
        .groupBy("word", f.expr("binary(raw)").alias("raw"))
        .count()
    )
    shown: list[str] = []
    frames: list[tuple[list[Any], int]] = []

    def keep(frame: DataFrame, batch_id: int) -> None:
        frames.append((frame.collect(), batch_id))

    console = Recorder(ConsoleWriter(1, shown.append))
    function = Recorder(FunctionWriter(keep))
    for number in range(3):
        lines = [json.dumps({"word": f"w{n}", "raw": "é"}) for n in range(5)]
        (source / f"{number}.json").write_text("\n".join(lines))
        if number != 1:
            run(counts, console, tmp_path / "console")
    run(counts, function, tmp_path / "function")

    # A row of each word that was not shown is counted all the same.
    texts = [text.splitlines() for text in shown]
    assert [lines[0] for lines in texts] == [f"alerts, batch {n}: 5 rows" for n in range(3)]
    assert [lines[1].split() for lines in texts] == [["word", "raw", "count"]] * 3
    assert [lines[3].split()[1:] for lines in texts] == [["é", str(n)] for n in (1, 2, 3)]
    assert [lines[-1] for lines in texts] == ["... and 4 more"] * 3
    assert console.written == [Written(rows=5)] * 3
    assert [(len(rows), number) for rows, number in frames] == [(5, 0), (5, 1), (5, 2)]


class Recorder:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.written: list[Written] = []

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.written.append(self._sink.write(frame, epoch(number)))


def run(frame: DataFrame, take: Callable[[DataFrame, int], None], checkpoint: Path) -> None:
    writer = frame.writeStream.outputMode("update").option("checkpointLocation", str(checkpoint))
    finish(writer.foreachBatch(take).trigger(availableNow=True).start())
