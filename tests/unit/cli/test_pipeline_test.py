"""`penstock pipeline test` lists what passed and what failed, and its exit code says which."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli.failures import CommandFailed
from penstock.cli.main import cli
from penstock.pipelines.running import sessions
from penstock.pipelines.specification.model import Case, Pipeline
from penstock.pipelines.specification.problems import Place
from penstock.pipelines.trying import cases
from penstock.pipelines.trying.cases import Outcome
from penstock.pipelines.trying.differences import Comparison, Missing, Nearest

SPECIFICATION = """\
pipeline: iot
sources: {readings: {topic: "${topic}"}}
flows: {shown: {from: readings, to: console}}
parameters: {topic: readings}
tests:
- {name: cold, given: {readings: []}, expect: {readings: []}}
- {name: hot, given: {readings: []}, expect: {readings: []}}
- {name: broken, given: {readings: []}, expect: {readings: []}}
"""
DIFFERENCE = Comparison(
    dataset="readings",
    matched=1,
    missing=(
        Missing(
            row={"sensor": "a", "mean": 1.0},
            nearest=Nearest(row={"mean": 2.0}, differs=("mean",)),
        ),
    ),
    unexpected=({"sensor": "a", "mean": 2.0},),
)


class Session:
    """Stands in for Spark's."""

    def __init__(self) -> None:
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """No Spark: the cases have the outcomes that their names say."""
    made = Session()

    def make_session(name: str, **settings: Any) -> Session:
        assert name == "iot tests"
        return made

    def try_cases(
        pipeline: Pipeline, running: Session, chosen: Sequence[Case]
    ) -> Iterator[Outcome]:
        for case in chosen:
            yield outcome(case.name)

    monkeypatch.setattr(sessions, "make_session", make_session)
    monkeypatch.setattr(cases, "try_cases", try_cases)
    return made


def outcome(name: str) -> Outcome:
    place = Place("iot.yaml", 7)
    same = Comparison(dataset="readings", matched=2)
    comparisons = {"cold": (same,), "hot": (same, DIFFERENCE), "broken": ()}[name]
    problems = ("iot.yaml:9: The SQL ends too early.",) if name == "broken" else ()
    return Outcome(
        case=name, place=place, duration_s=1.25, comparisons=comparisons, problems=problems
    )


def run(folder: Path, *arguments: str) -> Result:
    path = folder / "iot.yaml"
    path.write_text(SPECIFICATION)
    command = ["pipeline", "test", str(path), *arguments]
    return CliRunner().invoke(cli, command, standalone_mode=False)


def test_failures_are_shown_with_their_differences(tmp_path: Path, session: Session) -> None:
    result = run(tmp_path)
    assert result.return_value == 1
    assert result.output.splitlines() == [
        "passed  cold (1.2 s)",
        "FAILED  hot (1.2 s)",
        "  iot.yaml:7",
        "  readings: 1 as expected, 1 missing, 1 unexpected.",
        '    missing     sensor: "a", mean: 1.0',
        "      nearest   has mean: 2.0",
        '    unexpected  sensor: "a", mean: 2.0',
        "FAILED  broken (1.2 s)",
        "  iot.yaml:9: The SQL ends too early.",
        "3 tests: 1 passed, 2 failed.",
    ]
    assert session.is_stopped


def test_one_case_can_be_chosen(tmp_path: Path, session: Session) -> None:
    result = run(tmp_path, "--case", "cold", "-p", "topic=others")
    assert result.return_value == 0
    assert result.output.splitlines() == ["passed  cold (1.2 s)", "1 test passed."]


def test_json_has_all_of_it(tmp_path: Path, session: Session) -> None:
    result = run(tmp_path, "--json")
    assert result.return_value == 1
    found = json.loads(result.output)
    assert found["pipeline"] == "iot"
    assert [test["passed"] for test in found["tests"]] == [True, False, False]
    assert found["tests"][1]["datasets"][1] == {
        "name": "readings",
        "matched": 1,
        "missing": [{"sensor": "a", "mean": 1.0}],
        "unexpected": [{"sensor": "a", "mean": 2.0}],
    }
    assert found["tests"][2]["problems"] == ["iot.yaml:9: The SQL ends too early."]


def test_an_unknown_case_is_refused_with_the_nearest(tmp_path: Path, session: Session) -> None:
    result = run(tmp_path, "--case", "cald")
    assert isinstance(result.exception, CommandFailed)
    assert str(result.exception) == (
        'There is no test "cald" in the pipeline; the nearest is cold.'
    )


def test_a_file_without_tests_is_refused(tmp_path: Path, session: Session) -> None:
    path = tmp_path / "iot.yaml"
    path.write_text(SPECIFICATION.partition("tests:")[0])
    result = CliRunner().invoke(cli, ["pipeline", "test", str(path)], standalone_mode=False)
    assert str(result.exception) == f"The file {path} has no tests."
