"""A function that raises is told by what it raised, its file and line, its flow and its batch."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from penstock.cli.main import cli
from penstock.pipelines.running.refusals import FlowFailed
from penstock.pipelines.running.runner import run_pipeline
from penstock.pipelines.specification.reading import read_pipeline
from penstock.pipelines.trying.cases import try_cases
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.conftest import Produce
from tests.spark.pipelines.running_rig import Recorder

STEPS = """\
from pyspark.sql import functions as sf


@sf.udf("double")
def warmer(celsius):
    if celsius > 90:
        raise ValueError("sensor 7 is too hot")
    return celsius + 1


def warmed(readings):
    return readings.select(warmer("celsius").alias("celsius"))


def ring(rows):
    assert rows.count() == 5
    {}["bell"]
"""
IN_YAML = """\
pipeline: alarms
parameters: {brokers: {}, topic: {}}
sources:
  readings:
    topic: ${topic}
    brokers: ${brokers}
    decode: {format: json, schema: "celsius DOUBLE"}
steps:
  warmed: {function: "steps.py:warmed"}
flows:
  warm: {from: warmed, to: {parquet: lake/warm}}
tests:
- name: it is warm
  given: {readings: [{celsius: 91}]}
  expect: {warmed: [{celsius: 92}]}
"""
IN_PYTHON = """\
from penstock import pipelines as dp
from steps import ring

brokers = dp.parameter("brokers")
topic = dp.parameter("topic")
dp.create_source("readings", topic=topic, brokers=brokers)
dp.create_sink("bell", "function", {"function": ring})


@dp.append_flow(target="bell")
def ringing(readings):
    return readings
"""


def test_a_function_that_raises_is_told_with_its_line_and_its_batch(
    spark: SparkSession,
    broker: Broker,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    topic = make_topic(partitions=1)
    produce(topic, [b'{"celsius": %d}' % (90 + number % 2) for number in range(5)])
    (tmp_path / "steps.py").write_text(STEPS)
    given = {"brokers": broker.bootstrap, "topic": topic}
    read = f"The record is in batch 0, which reads offsets 0 to 4 of partition 0 of topic {topic}."
    steps = tmp_path / "steps.py"

    # In a task, of a pipeline in YAML; its test says the same.
    (tmp_path / "alarms.yaml").write_text(IN_YAML)
    in_yaml = read_pipeline(tmp_path / "alarms.yaml", given, environment={})
    said = f"ValueError: sensor 7 is too hot ({steps}:7, in warmer)."
    watcher = Recorder()
    with pytest.raises(FlowFailed, match=re.escape(f"The flow warm failed: {said} {read}")):
        run_pipeline(in_yaml, once=True, watcher=watcher, spark=spark)
    # The screen of the run and `status` say it too.
    assert [flow.failure for flow in watcher.views[-1].flows] == [f"{said} {read}"]
    status = CliRunner().invoke(cli, ["pipeline", "status", "--storage", in_yaml.storage])
    assert f"The flow warm failed: {said} {read}\n" in status.stdout
    [outcome] = try_cases(in_yaml, spark)
    assert [problem.partition(": ")[2] for problem in outcome.problems] == [
        f"warmed failed: {said}"
    ]

    # On the driver, of a pipeline in Python.
    (tmp_path / "bells.py").write_text(IN_PYTHON)
    in_python = read_pipeline(tmp_path / "bells.py", given, environment={})
    said = f"The flow ringing failed: KeyError: 'bell' ({steps}:17, in ring). {read}"
    with pytest.raises(FlowFailed) as failed:
        run_pipeline(in_python, once=True, spark=spark)
    assert str(failed.value) == said
