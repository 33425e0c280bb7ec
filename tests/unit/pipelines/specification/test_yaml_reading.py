"""A YAML file becomes the model: every key, its default, and the place it stands at."""

from pathlib import Path

from penstock.pipelines.specification.model import (
    Action,
    ArchiveSource,
    ConsoleSink,
    DeduplicateStep,
    FileSource,
    FunctionSink,
    FunctionStep,
    LakeFormat,
    LakeSink,
    OutputMode,
    Restart,
    SqlStep,
    TableSource,
    TopicSink,
    TopicSource,
    ValueFormat,
)
from penstock.pipelines.specification.problems import Place
from tests.unit.pipelines.specification.files import SMALLEST, read

SOURCES = """\
pipeline: iot
description: Sensors.
storage: state/iot
settings: {spark.sql.shuffle.partitions: 4}
sources:
  readings:
    topics: [readings, more]
    brokers: host:1
    starting: {readings: {0: 23, 1: "${first}"}}
    options: {maxOffsetsPerTrigger: 100}
    decode: {format: json, schema: "sensor STRING", keep: [key]}
    watermark: {column: at, delay: 10 seconds}
    rules:
      plausible: {condition: t > 0, action: route}
      known: sensor IS NOT NULL
    dead_letters: readings-dead
  others: {pattern: "temp_.*"}
  rooms: {files: r.csv, format: csv, schema: "room STRING", stream: false, options: {header: true}}
  history: {table: lake/readings, format: delta}
  old: {archive: archive/readings, decode: text}
parameters: {first: 42}
flows:
  shown: {from: readings, to: {console: 5}}
"""


def test_restarts(tmp_path: Path) -> None:
    assert read(tmp_path, SMALLEST).restart == Restart()
    said = "restart: {attempts: 3, pause: 500 milliseconds, pause_max: 1 minute 30 seconds}\n"
    assert read(tmp_path, SMALLEST + said).restart == Restart(
        attempts=3, pause_s=0.5, pause_s_max=90.0
    )
    # A longer first pause than the usual longest one is meant.
    assert read(tmp_path, SMALLEST + "restart: {pause: 1 hour}\n").restart == Restart(
        pause_s=3600.0, pause_s_max=3600.0
    )


def test_sources(tmp_path: Path) -> None:
    pipeline = read(tmp_path, SOURCES)
    file = str(tmp_path / "iot.yaml")
    assert (pipeline.name, pipeline.description, pipeline.file) == ("iot", "Sensors.", file)
    assert pipeline.storage == str(tmp_path / "state/iot")
    assert pipeline.settings == {"spark.sql.shuffle.partitions": "4"}

    readings = pipeline.sources["readings"]
    assert isinstance(readings, TopicSource)
    assert readings.options == {
        "kafka.bootstrap.servers": "host:1",
        "startingOffsets": '{"readings": {"0": 23, "1": 42}}',
        "subscribe": "readings,more",
        "maxOffsetsPerTrigger": "100",
    }
    assert readings.place == Place(file, 6, 3)
    assert readings.decoding is not None
    assert readings.decoding.format is ValueFormat.JSON
    assert readings.decoding.keep == ("key",)
    assert readings.decoding.place == Place(file, 11, 37)
    assert readings.watermark is not None
    assert readings.watermark.delay == "10 seconds"
    assert [(rule.name, rule.condition, rule.action) for rule in readings.rules] == [
        ("plausible", "t > 0", Action.ROUTE),
        ("known", "sensor IS NOT NULL", Action.KEEP),
    ]
    assert readings.rules[1].place == Place(file, 15, 14)

    others = pipeline.sources["others"]
    assert isinstance(others, TopicSource)
    assert others.options == {
        "kafka.bootstrap.servers": "localhost:9092",
        "startingOffsets": "earliest",
        "subscribePattern": "temp_.*",
    }
    rooms, history, old = (pipeline.sources[name] for name in ("rooms", "history", "old"))
    assert isinstance(rooms, FileSource)
    assert (rooms.path, rooms.is_stream) == (str(tmp_path / "r.csv"), False)
    assert rooms.options == {"header": "true"}
    assert rooms.schema_place == Place(file, 18, 47)
    assert isinstance(history, TableSource)
    assert (history.format, history.is_stream) == (LakeFormat.DELTA, False)
    assert isinstance(old, ArchiveSource)
    assert old.decoding is not None
    assert (old.decoding.format, old.is_stream) == (ValueFormat.TEXT, True)


def test_dead_letters_are_a_flow_of_their_own(tmp_path: Path) -> None:
    flow = read(tmp_path, SOURCES).flows["readings_dead_letters"]
    assert flow.input == "readings_undecodable"
    assert isinstance(flow.sink, TopicSink)
    assert flow.sink.options == {"kafka.bootstrap.servers": "host:1", "topic": "readings-dead"}


def test_steps_and_the_datasets_that_they_take(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def find(readings, rooms, spark, parameters, n=2): ...\n")
    pipeline = read(
        tmp_path,
        SMALLEST
        + """\
steps:
  averages:
    sql: |

      SELECT window.start, avg(t) FROM Once
      GROUP BY window(at, '1 minute')
    rules: {plausible: avg < 80}
  anomalies: {function: work.py:find}
  named: {sql: TABLE readings, inputs: [readings]}
  once: {deduplicate: readings, by: sensor, within_watermark: false}
""",
    )
    assert list(pipeline.steps) == ["once", "averages", "anomalies", "named"]
    averages, anomalies, once = (pipeline.steps[name] for name in ("averages", "anomalies", "once"))
    assert isinstance(averages, SqlStep)
    assert averages.inputs == ("once",)
    assert averages.sql.startswith("\nSELECT")
    assert averages.sql_place == Place(str(tmp_path / "iot.yaml"), 10, 7)
    assert [rule.name for rule in averages.rules] == ["plausible"]
    assert isinstance(anomalies, FunctionStep)
    assert anomalies.function.file == str(tmp_path / "work.py")
    assert anomalies.inputs == ("readings", "rooms")
    assert isinstance(once, DeduplicateStep)
    assert (once.input, once.by, once.is_within_watermark) == ("readings", ("sensor",), False)
    assert pipeline.steps["named"].inputs == ("readings",)


def test_flows_and_sinks(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def ring(rows, batch): ...\n")
    flows = read(
        tmp_path,
        SMALLEST
        + """\
  topic: {from: readings, to: {topic: out, key: sensor, options: {kafka.acks: all}}, every: 1 day}
  delta:
    from: readings
    to: {delta: lake/a, partition_by: [a, b], evolve: true}
    mode: update
    settings: {x: 1}
  iceberg: {from: readings, to: {iceberg: lake/b, options: {table: readings}}}
  parquet: {from: readings, to: {parquet: file:///lake/c, partition_by: a}}
  function: {from: readings, to: {function: work.py:ring}}
""",
    ).flows
    topic, delta, iceberg, parquet, function, shown = (
        flows[name].sink for name in ("topic", "delta", "iceberg", "parquet", "function", "shown")
    )
    assert isinstance(topic, TopicSink)
    assert topic.key == "sensor"
    assert topic.options["kafka.acks"] == "all"
    assert (flows["topic"].interval, flows["topic"].mode) == ("1 day", OutputMode.APPEND)
    assert isinstance(delta, LakeSink)
    assert (delta.path, delta.partition_by) == (str(tmp_path / "lake/a"), ("a", "b"))
    assert delta.may_evolve
    assert (flows["delta"].mode, flows["delta"].settings) == (OutputMode.UPDATE, {"x": "1"})
    assert isinstance(iceberg, LakeSink)
    assert iceberg.options == {"table": "readings"}
    assert isinstance(parquet, LakeSink)
    assert (parquet.path, parquet.partition_by) == ("/lake/c", ("a",))
    assert not parquet.may_evolve
    assert isinstance(function, FunctionSink)
    assert function.function.name == "ring"
    assert isinstance(shown, ConsoleSink)
    assert shown.rows == 20


def test_rows_of_tests_have_the_types_of_yaml(tmp_path: Path) -> None:
    pipeline = read(
        tmp_path,
        SMALLEST
        + """\
tests:
  - name: types
    given:
      readings:
        - {a: 1, b: 1.5, c: "1", d: null, e: true, f: no, g: 12:30:00, h: !!binary aGk=, i: !!str 5}
        - {a: [1, {b: -2e3}], c: ~}
    expect: {readings: []}
  - given: {readings: [[{a: 1}], [{a: 2}]]}
    expect: {readings: [{a: 1}]}
""",
        # An empty list of expected rows is an expectation.
    )
    typed, batches = pipeline.cases
    assert typed.name == "types"
    assert typed.given["readings"] == (
        (
            {
                "a": 1,
                "b": 1.5,
                "c": "1",
                "d": None,
                "e": True,
                "f": "no",
                "g": "12:30:00",
                "h": b"hi",
                "i": "5",
            },
            {"a": [1, {"b": -2000.0}], "c": None},
        ),
    )
    assert typed.expected == {"readings": ()}
    assert batches.name == "test 2"
    assert batches.given == {"readings": (({"a": 1},), ({"a": 2},))}


def test_parts_can_be_shared_by_anchors(tmp_path: Path) -> None:
    pipeline = read(
        tmp_path,
        """\
        pipeline: iot
        sources:
          a: &common {topic: a, brokers: "host:1"}
          b: {<<: *common, topic: b}
        flows:
          a: {from: a, to: console}
        """,
    )
    options = [source.options for source in pipeline.sources.values()]  # type: ignore[union-attr]
    assert [one["subscribe"] for one in options] == ["a", "b"]
    assert [one["kafka.bootstrap.servers"] for one in options] == ["host:1", "host:1"]
