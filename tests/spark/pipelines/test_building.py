"""Proves how the datasets of a pipeline come to be: decoding, rules, steps, and their counters."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.pipelines.building.blank_reader import BlankReader
from penstock.pipelines.building.datasets import Datasets
from penstock.pipelines.building.live_reader import LiveReader
from penstock.pipelines.building.spark_problems import sentence_of
from penstock.pipelines.specification.model import Source
from penstock.pipelines.specification.reading import read_pipeline

SPECIFICATION = """\
pipeline: iot
parameters: {limit: 21}
sources:
  readings:
    topic: readings
    decode: {format: json, schema: "sensor STRING, temperature DOUBLE, at TIMESTAMP, offset INT"}
    watermark: {column: at, delay: 10 seconds}
    rules:
      known: {condition: sensor IS NOT NULL, action: drop}
      plausible: {condition: temperature BETWEEN -50 AND 80, action: route}
      cold: {condition: temperature < 10}
  strict:
    topic: readings
    decode:
      format: json
      schema: "sensor STRING, temperature DOUBLE, `room.floor` INT"
      keep: [offset]
    rules: {plausible: {condition: temperature < 80, action: fail}}
  words: {topic: readings, decode: {format: text, into: word, keep: []}}
  rooms: {files: rooms.csv, format: csv, schema: "sensor STRING, room STRING", stream: false}
steps:
  placed:
    sql: SELECT r.*, m.room FROM readings AS r LEFT JOIN rooms AS m ON r.sensor = m.sensor
  warm: {function: steps.py:warm, rules: {named: {condition: room = 'attic'}}}
  unique: {deduplicate: warm, by: [sensor]}
flows:
  all: {from: unique, to: {console: 1}}
"""
STEPS = """\
def warm(placed, spark, parameters):
    assert placed.sparkSession is spark
    return placed.where(f"temperature >= {parameters['limit']}")
"""
VALUES = [
    '{"sensor": "a", "temperature": 20.0, "at": "2026-01-01T00:00:00Z", "offset": 77}',
    '{"sensor": "a", "temperature": 22.0, "at": "2026-01-01T00:00:01Z"}',
    '{"sensor": "a", "temperature": 23.0, "at": "2026-01-01T00:00:02Z"}',
    '{"sensor": "b", "temperature": 900.0, "at": "2026-01-01T00:00:03Z"}',
    '{"sensor": null, "temperature": 900.0, "at": "2026-01-01T00:00:04Z"}',
    '{"sensor": "c", "temperature": "hot"}',
    "nonsense",
]
RECORDS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
)


class GivenRecords:
    """The records above as a topic, in a file, and one room."""

    def __init__(self, spark: SparkSession, folder: Path, *, is_stream: bool) -> None:
        self._spark = spark
        self._folder = str(folder / "records")
        self._is_stream = is_stream
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        rows = [
            (b"k", bytearray(value, "utf-8"), "readings", 0, offset, moment)
            for offset, value in enumerate(VALUES)
        ]
        spark.createDataFrame(rows, RECORDS).coalesce(1).write.parquet(self._folder)

    def read(self, source: Source) -> DataFrame:
        if source.name == "rooms":
            return self._spark.sql("SELECT 'a' AS sensor, 'attic' AS room")
        reader = self._spark.readStream if self._is_stream else self._spark.read
        return reader.schema(RECORDS).parquet(self._folder)


@pytest.fixture
def specification(tmp_path: Path) -> Path:
    (tmp_path / "steps.py").write_text(STEPS)
    path = tmp_path / "iot.yaml"
    path.write_text(SPECIFICATION)
    return path


def test_rows_are_decoded_divided_by_rules_and_taken_through_steps(
    spark: SparkSession, specification: Path, tmp_path: Path
) -> None:
    pipeline = read_pipeline(specification)
    datasets = Datasets(pipeline, spark, GivenRecords(spark, tmp_path, is_stream=False))

    readings = datasets.frame("readings")
    # A field of the value comes before the record's own column of the same name.
    assert readings.columns == [
        *("sensor", "temperature", "at", "offset"),
        *("key", "topic", "partition", "timestamp"),
    ]
    assert [(row.temperature, row.offset) for row in readings.collect()] == [
        (20.0, 77),
        (22.0, None),
        (23.0, None),
    ]
    rejected = datasets.frame("readings_rejected").collect()
    # The first broken rule decides: the row without a sensor is dropped, not routed.
    assert [(row.sensor, row.broken_rule) for row in rejected] == [("b", "plausible")]
    dead = datasets.frame("readings_undecodable").collect()
    assert [bytes(row.value).decode() for row in dead] == VALUES[5:]
    reasons = [{header.key: bytes(header.value) for header in row.headers} for row in dead]
    assert reasons[0]["penstock.offset"] == b"5"
    assert b"'temperature'" in reasons[0]["penstock.reason"]
    assert datasets.frame("words").columns == ["word"]

    unique = datasets.frame("unique").collect()
    assert [(row.sensor, row.room) for row in unique] == [("a", "attic")]
    assert not spark.catalog.tableExists("readings"), "views are gone once the SQL is analysed"

    with pytest.raises(PySparkException) as failure:
        datasets.frame("strict").collect()
    said = sentence_of(failure.value)
    assert said.startswith("A row of strict breaks the rule plausible (temperature < 80): {")
    assert '"sensor":"b","temperature":900.0,"offset":3}.' in said


def test_counters_arrive_in_the_progress_of_a_query_with_a_batch_function(
    spark: SparkSession, specification: Path, tmp_path: Path
) -> None:
    pipeline = read_pipeline(specification)
    datasets = Datasets(pipeline, spark, GivenRecords(spark, tmp_path, is_stream=True))
    written: list[int] = []
    query = (
        datasets.frame("warm")
        .writeStream.foreachBatch(lambda frame, batch: written.append(len(frame.collect())))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    progress = [json.loads(one.json) for one in query.recentProgress]
    assert sum(written) == 2
    assert progress[0]["observedMetrics"] == {
        "decoding.readings": {"records": 7, "undecodable": 2},
        "rules.readings": {"known": 1, "plausible": 2, "cold": 5},
        "rules.warm": {"named": 0},
    }
    assert "2026-01-01T00:00:02" in progress[0]["eventTime"]["max"], "rules come before watermarks"


def test_blank_sources_have_the_columns_of_live_ones(
    spark: SparkSession, specification: Path, tmp_path: Path
) -> None:
    pipeline = read_pipeline(specification)
    (tmp_path / "rooms.csv").write_text("a,attic\n")
    blank = Datasets(pipeline, spark, BlankReader(spark))
    live = Datasets(pipeline, spark, LiveReader(spark))
    for name in ("readings", "readings_rejected", "readings_undecodable", "rooms", "unique"):
        assert blank.frame(name).schema == live.frame(name).schema, name
        assert blank.frame(name).isStreaming == live.frame(name).isStreaming == (name != "rooms")
