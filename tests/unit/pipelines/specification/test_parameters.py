"""Parameters get their values from flags, the environment and defaults, in this order."""

from pathlib import Path

import pytest

from penstock.pipelines.specification.model import LakeSink, TopicSource
from tests.unit.pipelines.specification.files import problems, read

TEXT = """\
pipeline: iot
storage: ${lake}/state
parameters:
  topic: readings
  lake: {default: "/lake/${topic}", environment: IOT_LAKE, description: Where.}
  stream: true
sources:
  readings: {topic: "${topic}-$${topic}"}
  rooms: {files: a, format: text, stream: "${stream}"}
flows:
  out: {from: readings, to: {delta: "${lake}/out"}}
"""
PLAIN = TEXT.replace("-$${topic}", "")


def values(folder: Path, **more: dict[str, str]) -> dict[str, str]:
    return dict(read(folder, PLAIN, **more).parameters)  # type: ignore[arg-type]


def test_a_flag_wins_over_the_environment_and_that_over_the_default(tmp_path: Path) -> None:
    assert values(tmp_path) == {"topic": "readings", "lake": "/lake/readings", "stream": "true"}
    environment = {"PENSTOCK_TOPIC": "b", "IOT_LAKE": "/b", "PENSTOCK_LAKE": "/c"}
    assert values(tmp_path, environment=environment) == {
        "topic": "b",
        "lake": "/b",
        "stream": "true",
    }
    given = values(tmp_path, environment=environment, given={"topic": "c"})
    assert given["topic"] == "c"


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert values(tmp_path, environment={"PENSTOCK_TOPIC": ""})["topic"] == "readings"


def test_values_stand_in_texts_flags_and_paths(tmp_path: Path) -> None:
    pipeline = read(tmp_path, PLAIN, given={"stream": "false", "lake": "there"})
    assert not pipeline.sources["rooms"].is_stream  # type: ignore[union-attr]
    assert pipeline.storage == str(tmp_path / "there/state")
    sink = pipeline.flows["out"].sink
    assert isinstance(sink, LakeSink)
    assert sink.path == str(tmp_path / "there/out")


def test_two_dollars_stand_for_one(tmp_path: Path) -> None:
    text = TEXT.replace('topic: "${topic}-$${topic}"', 'pattern: "${topic}-$${topic}"')
    source = read(tmp_path, text).sources["readings"]
    assert isinstance(source, TopicSource)
    assert source.options["subscribePattern"] == "readings-${topic}"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("${lake}/out", "${lak}/out", "11:38: There is no parameter lak; the nearest is lake."),
        ("${lake}/out", "a/${lake", "11:40: The parameter '${lake' has no closing brace."),
        (
            "stream: true",
            "stream: {}",
            "6:3: The parameter stream has no value: give -p stream=VALUE or set PENSTOCK_STREAM.",
        ),
        (
            "stream: true",
            "stream: {environment: LIVE}",
            "6:3: The parameter stream has no value: give -p stream=VALUE or set LIVE.",
        ),
        (
            "stream: true",
            "stream: {defalt: true}",
            "6:12: The key defalt is unknown in the parameter stream; the nearest is default.",
        ),
        (
            "stream: true",
            "stream: ${streams}",
            "6:3: There is no parameter streams; there are: topic, lake.",
        ),
        (
            "stream: true",
            "stream: true\n  a-b: 1",
            '7:3: The name of the parameter "a-b" must start with a letter and hold only letters, '
            "digits and underscores.",
        ),
    ],
)
def test_what_is_wrong_with_parameters(tmp_path: Path, old: str, new: str, problem: str) -> None:
    """Only that: what depends on a missing value can't be judged."""
    assert problems(tmp_path, PLAIN.replace(old, new)) == [problem]


def test_a_value_for_no_parameter(tmp_path: Path) -> None:
    found = problems(tmp_path, PLAIN, given={"lakes": "x"})
    assert found == ["There is no parameter lakes; the nearest is lake."]
