"""A Python file becomes the same model as YAML, with the line of each declaration."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.pipelines.specification.model import (
    Action,
    ConsoleSink,
    FunctionSink,
    FunctionStep,
    LakeFormat,
    LakeSink,
    OutputMode,
    Restart,
    TopicSink,
    TopicSource,
    ValueFormat,
)
from penstock.pipelines.specification.yaml_reading import read_yaml
from tests.unit.pipelines.declaring.files import SMALLEST, declared

IOT = """\
brokers = dp.parameter("brokers", default="localhost:9092")
dp.pipeline("iot", description="Sensors", storage="state", settings={"spark.x": 4})
dp.create_source(
    "readings",
    topic="readings",
    brokers=brokers,
    decode={"format": "json", "schema": "sensor STRING, at TIMESTAMP", "keep": ["key"]},
    watermark=("at", "10 seconds"),
    rules={"known": ("sensor IS NOT NULL", "route"), "short": "length(sensor) < 9"},
    dead_letters="readings-dead",
)

@dp.temporary_view(spark_conf={"spark.a": "view", "spark.b": "view"})
def averages(readings, spark, parameters, size=3):
    return readings

@dp.table(
    format="delta", path="lake/averages", partition_cols=["sensor"], every="5 seconds",
    spark_conf={"spark.b": "table"}, evolve=True,
)
def averages_table(averages):
    return averages

@dp.append_flow(target="alerts", name="alerting", mode="update")
def flow_of_alerts(averages_table, readings_rejected):
    return averages_table

dp.create_sink("alerts", "penstock", {"topic": "alerts", "brokers": brokers, "key": "sensor"})

def batches(frame, batch_id):
    pass

dp.create_sink("batches", "function", {"function": batches})
dp.create_streaming_table("kept")

@dp.append_flow(target="batches")
def one(readings): return readings

@dp.append_flow(target="kept")
def two(readings): return readings

@dp.append_flow(target="kept")
def three(readings): return readings

dp.test("all", given={"readings": [[{"sensor": "a"}], []]}, expect={"averages": [{"sensor": "a"}]})
"""


def test_a_file_becomes_a_pipeline(tmp_path: Path) -> None:
    pipeline = declared(tmp_path, IOT, environment={"PENSTOCK_BROKERS": "one:9092"})
    assert (pipeline.name, pipeline.description) == ("iot", "Sensors")
    assert pipeline.storage == str(tmp_path / "state")
    assert pipeline.settings == {"spark.x": "4"}
    assert pipeline.parameters == {"brokers": "one:9092"}
    readings = pipeline.sources["readings"]
    assert isinstance(readings, TopicSource)
    assert readings.options["kafka.bootstrap.servers"] == "one:9092"
    assert readings.decoding is not None
    assert (readings.decoding.format, readings.decoding.keep) == (ValueFormat.JSON, ("key",))
    assert readings.watermark is not None
    assert (readings.watermark.column, readings.watermark.delay) == ("at", "10 seconds")
    actions = {rule.name: rule.action for rule in readings.rules}
    assert actions == {"known": Action.ROUTE, "short": Action.KEEP}
    assert (readings.place.file, readings.place.line) == (str(tmp_path / "iot.py"), 4)
    case = pipeline.cases[0]
    assert case.given == {"readings": (({"sensor": "a"},), ())}
    assert case.expected == {"averages": ({"sensor": "a"},)}


def test_restarts_are_said_of_the_pipeline(tmp_path: Path) -> None:
    assert declared(tmp_path, SMALLEST).restart == Restart()
    said = 'dp.pipeline("iot", restart={"attempts": 3, "pause": "5 seconds"})\n'
    assert declared(tmp_path, SMALLEST + said).restart == Restart(attempts=3, pause_s=5.0)


def test_functions_become_steps_whose_parameters_are_inputs(tmp_path: Path) -> None:
    steps = declared(tmp_path, IOT).steps
    averages, alerting = steps["averages"], steps["alerting"]
    assert isinstance(averages, FunctionStep)
    assert averages.inputs == ("readings",)
    assert averages.place.line == 14
    assert averages.function.function is not None
    assert averages.function.function("frame", None, None) == "frame"
    assert alerting.inputs == ("averages_table", "readings_rejected")
    assert list(steps).index("averages") < list(steps).index("averages_table")


def test_targets_may_stand_above_or_below_their_flows(tmp_path: Path) -> None:
    flows = declared(tmp_path, IOT).flows
    table = flows["averages_table"]
    assert isinstance(table.sink, LakeSink)
    assert table.sink.format is LakeFormat.DELTA
    assert table.sink.path == str(tmp_path / "lake/averages")
    assert (table.sink.partition_by, table.sink.may_evolve) == (("sensor",), True)
    assert (table.input, table.interval) == ("averages_table", "5 seconds")
    alerting = flows["alerting"]
    assert isinstance(alerting.sink, TopicSink)
    assert (alerting.sink.options["topic"], alerting.sink.key) == ("alerts", "sensor")
    assert (alerting.input, alerting.mode) == ("alerting", OutputMode.UPDATE)
    letters = flows["readings_dead_letters"]
    assert isinstance(letters.sink, TopicSink)
    assert letters.input == "readings_undecodable"
    function = flows["one"].sink
    assert isinstance(function, FunctionSink)
    assert function.function.name == "batches"
    assert flows["two"].sink == flows["three"].sink
    assert isinstance(flows["two"].sink, LakeSink)
    assert flows["two"].sink.path == str(tmp_path / "tables/kept")
    assert not flows["two"].sink.may_evolve


def test_settings_of_a_view_hold_for_the_flows_that_read_it(tmp_path: Path) -> None:
    flows = declared(tmp_path, IOT).flows
    assert flows["averages_table"].settings == {"spark.a": "view", "spark.b": "table"}
    assert flows["one"].settings == {}


def test_both_forms_give_the_same_sources_and_sinks(tmp_path: Path) -> None:
    text = """\
    pipeline: iot
    sources:
      readings:
        topics: [a, b]
        starting: latest
        options: {maxOffsetsPerTrigger: 10}
        decode: {format: json, schema: "sensor STRING"}
        rules: {known: {condition: sensor IS NOT NULL, action: drop}}
      rooms: {files: rooms.csv, format: csv, schema: "room STRING", stream: false}
      history: {table: lake, format: delta, stream: true}
      old: {archive: archive/readings, decode: text}
    flows:
      raw: {from: readings, to: {iceberg: lake/raw, options: {namespace: x}}}
      shown: {from: old, to: {console: 7}}
    """
    (tmp_path / "iot.yaml").write_text("\n".join(line[4:] for line in text.split("\n")))
    yaml = read_yaml(tmp_path / "iot.yaml", {}, {})
    python = declared(
        tmp_path,
        """\
        dp.create_source(
            "readings", topics=["a", "b"], starting="latest", options={"maxOffsetsPerTrigger": 10},
            decode={"format": "json", "schema": "sensor STRING"},
            rules={"known": {"condition": "sensor IS NOT NULL", "action": "drop"}},
        )
        dp.create_source(
            "rooms", files="rooms.csv", format="csv", schema="room STRING", stream=False
        )
        dp.create_source("history", table="lake", format="delta", stream=True)
        dp.create_source("old", archive="archive/readings", decode="text")
        @dp.table(format="iceberg", path="lake/raw", options={"namespace": "x"})
        def raw(readings): return readings
        dp.create_sink("screen", "console", {"numRows": 7})
        @dp.append_flow(target="screen")
        def shown(old): return old
        """,
    )
    assert (python.name, python.storage) == (yaml.name, yaml.storage)
    assert without_places(python.sources) == without_places(yaml.sources)
    for name in ("raw", "shown"):
        assert without_places(python.flows[name].sink) == without_places(yaml.flows[name].sink)


def without_places(value: object) -> object:
    if isinstance(value, dict):
        return {name: without_places(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(without_places(item) for item in value)
    names = getattr(value, "__slots__", None)
    if not isinstance(names, tuple):
        return value
    return {name: without_places(getattr(value, name)) for name in names if "place" not in name}


def test_a_file_without_a_name_is_named_after_itself(tmp_path: Path) -> None:
    pipeline = declared(tmp_path, SMALLEST, name="Night Shift.py")
    assert pipeline.name == "night-shift"
    assert isinstance(pipeline.flows["shown"].sink, ConsoleSink)


def test_a_parameter_comes_from_the_flag_then_the_environment_then_its_default(
    tmp_path: Path,
) -> None:
    text = SMALLEST + 'dp.pipeline(dp.parameter("name", default="d", environment="NAME"))\n'
    assert declared(tmp_path, text).name == "d"
    assert declared(tmp_path, text, environment={"NAME": "e"}).name == "e"
    both = declared(tmp_path, text, given={"name": "f"}, environment={"NAME": "e"})
    assert both.name == "f"
    assert both.parameters == {"name": "f"}


def test_threads_load_files_with_neighbours_of_one_name_and_leave_nothing_behind(
    tmp_path: Path,
) -> None:
    modules, path = set(sys.modules), list(sys.path)
    folders = [tmp_path / str(number) for number in range(8)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "numbers_here.py").write_text(f"NAME = 'pipeline-{number}'\n")
    texts = [f"{SMALLEST}from numbers_here import NAME\ndp.pipeline(NAME)\n" for _ in folders]
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(declared, folders, texts))
    assert [pipeline.name for pipeline in found] == [f"pipeline-{number}" for number in range(8)]
    assert sys.path == path
    assert not [name for name in set(sys.modules) - modules if name.startswith("numbers_here")]
