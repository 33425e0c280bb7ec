"""Each sink of a specification has its writer."""

from pathlib import Path

import pytest

from penstock.pipelines.sinks.building import build_sink
from penstock.pipelines.sinks.console_sink import ConsoleWriter
from penstock.pipelines.sinks.function_sink import FunctionWriter
from penstock.pipelines.sinks.lake_sink import LakeWriter
from penstock.pipelines.sinks.sink import SinkRefused
from penstock.pipelines.sinks.topic_sink import TopicWriter
from penstock.pipelines.specification import model
from penstock.pipelines.specification.problems import Place

PLACE = Place(file="p.yaml", line=1, column=1)


def lake(path: str, **given: object) -> model.LakeSink:
    return model.LakeSink(format=model.LakeFormat.DELTA, path=path, place=PLACE, **given)  # type: ignore[arg-type]


def test_each_sink_has_its_writer(tmp_path: Path) -> None:
    reference = model.FunctionReference(name="take", function=print, place=PLACE)
    topic = model.TopicSink(options={"topic": "t"}, place=PLACE)
    assert isinstance(build_sink(topic), TopicWriter)
    assert isinstance(build_sink(model.ConsoleSink(place=PLACE)), ConsoleWriter)
    function = model.FunctionSink(function=reference, place=PLACE)
    assert isinstance(build_sink(function), FunctionWriter)
    assert isinstance(build_sink(lake(str(tmp_path / "t"))), LakeWriter)
    assert not (tmp_path / "t").exists()


def test_a_table_that_can_not_be_opened_is_the_sinks_refusal() -> None:
    with pytest.raises(SinkRefused, match="is not in a folder"):
        build_sink(lake("s3://bucket/t"))
    with pytest.raises(SinkRefused, match="does not take the option 'speed'"):
        build_sink(lake("/t", options={"speed": "high"}))
