"""A test knows which sources its datasets come from, and in which mode a dataset is seen."""

from pathlib import Path

import pytest

from penstock.pipelines.specification.lineage import owner_of, reached_from, sources_of
from penstock.pipelines.specification.model import OutputMode, Pipeline
from penstock.pipelines.specification.yaml_reading import read_yaml
from penstock.pipelines.trying.trial import modes_of

SPECIFICATION = """\
pipeline: iot
sources:
  readings:
    topic: readings
    decode: text
    rules: {short: {condition: length(text) < 9, action: route}}
  rooms: {files: x, format: csv, schema: "room STRING", stream: false}
  others: {topic: others}
steps:
  long: {sql: SELECT * FROM readings_rejected JOIN rooms}
  counted: {sql: SELECT count(*) AS number FROM long}
  doubled: {sql: SELECT 2 * number AS number FROM counted}
flows:
  doubled: {from: doubled, to: console, mode: complete}
  others: {from: others, to: console}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    path = tmp_path / "iot.yaml"
    path.write_text(SPECIFICATION)
    return read_yaml(path, {}, {})


def test_a_dataset_beside_another_belongs_to_it(pipeline: Pipeline) -> None:
    assert owner_of(pipeline, "readings") == "readings"
    assert owner_of(pipeline, "readings_rejected") == "readings"
    assert owner_of(pipeline, "readings_undecodable") == "readings"
    assert owner_of(pipeline, "nothing_rejected") is None


def test_only_what_a_dataset_is_made_of_is_reached(pipeline: Pipeline) -> None:
    assert sources_of(pipeline, ["doubled"]) == {"readings", "rooms"}
    assert sources_of(pipeline, ["others"]) == {"others"}
    long = {"long", "readings_rejected", "readings", "rooms"}
    assert reached_from(pipeline, ["long"]) == long


def test_a_dataset_is_seen_as_its_flow_sees_it(pipeline: Pipeline) -> None:
    assert modes_of(pipeline, "doubled") == [OutputMode.COMPLETE]
    assert modes_of(pipeline, "counted") == [OutputMode.APPEND, OutputMode.COMPLETE]
    assert modes_of(pipeline, "others") == [OutputMode.APPEND]
