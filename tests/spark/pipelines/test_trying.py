"""Test cases of a specification run as real streaming queries, and say what differs."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.pipelines.specification.model import Pipeline
from penstock.pipelines.specification.reading import read_pipeline
from penstock.pipelines.trying.cases import Outcome, try_cases
from penstock.pipelines.trying.differences import lines_of

SPECIFICATION = """\
pipeline: iot
sources:
  readings:
    topic: readings
    decode: {format: json, schema: "sensor STRING, temperature DOUBLE, at TIMESTAMP"}
    watermark: {column: at, delay: 10 seconds}
    rules:
      plausible: {condition: temperature < 80, action: route}
      named: {condition: sensor IS NOT NULL, action: fail}
  rooms: {files: rooms.csv, format: csv, schema: "sensor STRING, room STRING", stream: false}
steps:
  placed: {sql: "SELECT r.sensor, room, temperature, at FROM readings r JOIN rooms USING (sensor)"}
  averages:
    sql: |
      SELECT window.start, room, avg(temperature) AS average, count(*) AS number
      FROM placed GROUP BY window(at, '10 seconds'), room
  totals: {sql: "SELECT room, count(*) AS number FROM placed GROUP BY room"}
  warmed: {function: warming.py:warmed}
flows:
  averages: {from: averages, to: console}
  totals: {from: totals, to: console, mode: complete}
tests:
- name: a window ends when its time has passed, and what is late is left out
  given:
    rooms: [{sensor: a, room: hall}, {sensor: b, room: hall}]
    readings:
    - - {sensor: a, temperature: 20, at: "2026-01-01T00:00:01Z"}
      - {sensor: b, temperature: 21, at: "2026-01-01T00:00:02Z"}
      - {sensor: a, temperature: 99, at: "2026-01-01T00:00:03Z"}
    - - {sensor: a, temperature: 30, at: "2026-01-01T01:00:30+01:00"}
    - - {sensor: a, temperature: 30, at: "2026-01-01T00:00:31Z"}
    - - {sensor: a, temperature: 70, at: "2026-01-01T00:00:04Z"}
  expect:
    averages: [{start: "2026-01-01T00:00:00Z", room: hall, average: 20.5, number: 2}]
    totals: [{room: hall, number: 5}]
    readings_rejected: [{temperature: 99, broken_rule: plausible}]
    readings_undecodable: []
    rooms: [{room: hall, sensor: b}, {sensor: a}]
- name: records are decoded
  given:
    readings:
    - {key: k, value: {sensor: a, temperature: 1, at: "2026-01-01T00:00:01Z"}, partition: 3}
    - {key: l, value: "no JSON", headers: {trace: "7"}}
  expect:
    readings: [{sensor: a, temperature: 1, key: k, topic: readings, partition: 3, offset: 0}]
    warmed: [{sensor: a, temperature: 13.0}, {sensor: c}]
    readings_undecodable: [{key: l, value: "no JSON"}]
- name: a rule fails
  given: {readings: [{temperature: 1, at: "2026-01-01T00:00:01Z"}]}
  expect: {readings: []}
- name: a wrong type
  given: {readings: [{sensor: 7}]}
  expect: {readings: []}
- name: a wrong column
  given: {readings: []}
  expect: {averages: [{rom: hall}]}
"""
WARMING = """\
from pyspark.sql import functions as sf
from degrees import STEP

@sf.udf("double")
def warmer(value):
    return value + STEP

def warmed(readings):
    return readings.withColumn("temperature", warmer("temperature"))
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    (tmp_path / "warming.py").write_text(WARMING)
    (tmp_path / "degrees.py").write_text("STEP = 10\n")
    (tmp_path / "iot.yaml").write_text(SPECIFICATION)
    return read_pipeline(tmp_path / "iot.yaml", environment={})


def test_cases_run_as_streams_and_say_what_differs(spark: SparkSession, pipeline: Pipeline) -> None:
    # Of its own, since other tests may have left views in the one that they share.
    user = spark.newSession()
    outcomes = {outcome.case: outcome for outcome in try_cases(pipeline, user)}
    assert list(outcomes) == [case.name for case in pipeline.cases]
    window = outcomes["a window ends when its time has passed, and what is late is left out"]
    assert_passed(window)
    assert len(window.comparisons) == 5
    assert_decoded(outcomes["records are decoded"])
    assert_problems(outcomes)
    # A session of its own leaves nothing in the user's.
    assert user.catalog.listTables() == []
    assert not user.streams.active


def assert_passed(outcome: Outcome) -> None:
    lines = [line for one in outcome.comparisons for line in lines_of(one)]
    assert outcome.has_passed, "\n".join([*outcome.problems, *lines])


def assert_decoded(outcome: Outcome) -> None:
    """Decoding ran, a function's neighbour came along, and the one wrong row is told."""
    compared = {one.dataset: one for one in outcome.comparisons}
    assert compared["readings"].is_same
    assert compared["readings_undecodable"].is_same
    assert lines_of(compared["warmed"]) == [
        "warmed: 0 as expected, 2 missing, 1 unexpected.",
        '  missing     sensor: "a", temperature: 13.0',
        "    nearest   has temperature: 11.0",
        '  missing     sensor: "c"',
        '  unexpected  sensor: "a", temperature: 11.0',
    ]


def assert_problems(outcomes: Mapping[str, Outcome]) -> None:
    (failed,) = outcomes["a rule fails"].problems
    assert "readings failed: A row of readings breaks the rule named" in failed
    assert (
        outcomes["a wrong type"]
        .problems[0]
        .endswith(
            "The test 'a wrong type': readings, row 1: The column 'sensor': 7 is not a STRING; "
            "put it in quotes."
        )
    )
    assert (
        outcomes["a wrong column"]
        .problems[0]
        .endswith(
            "The test 'a wrong column' expects in averages, row 1: There is no column 'rom'; "
            "did you mean 'room'?"
        )
    )
    assert all("iot.yaml:" in outcomes[name].problems[0] for name in list(outcomes)[2:])


def test_a_python_file_is_tried_with_its_functions(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "degrees.py").write_text("STEP = 10\n")
    path = tmp_path / "iot.py"
    path.write_text(
        "from penstock import pipelines as dp\n"
        'dp.create_source("readings", files="in", format="json", schema="temperature DOUBLE")\n'
        + WARMING.replace("def warmed", "@dp.table\ndef warmed")
        + "dp.test('it', given={'readings': [{'temperature': 1}]},\n"
        "        expect={'warmed': [{'temperature': 11}]})\n"
    )
    (outcome,) = try_cases(read_pipeline(path, environment={}), spark)
    assert_passed(outcome)
    assert [one.matched for one in outcome.comparisons] == [1]
