"""Proves what `penstock pipeline validate` tells before Spark is needed, to people and programs."""

import json
from pathlib import Path

from click.testing import CliRunner

from penstock.cli.pipeline.validate import as_plain, size_of, validate
from penstock.pipelines.specification.problems import (
    Place,
    Problem,
    SpecificationRefused,
)
from penstock.pipelines.specification.reading import read_pipeline

SPECIFICATION = """\
pipeline: iot
sources:
  readings: {topic: readings}
flows:
  copy: {from: reading, to: {topic: copies}}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "iot.yaml"
    path.write_text(text)
    return path


def test_a_wrong_reference_is_told_without_spark(tmp_path: Path) -> None:
    path = written(tmp_path, SPECIFICATION)
    outcome = CliRunner().invoke(validate, [str(path)])
    assert isinstance(outcome.exception, SpecificationRefused)
    assert str(outcome.exception).startswith(f"{path}:5:16: ")
    found = json.loads(CliRunner().invoke(validate, [str(path), "--json"]).stdout)
    assert (found["valid"], found["file"]) == (False, str(path))
    (problem,) = found["problems"]
    assert (problem["line"], problem["column"]) == (5, 16)
    assert "reading" in problem["sentence"]


def test_a_pipeline_that_is_fine_is_summed_up(tmp_path: Path) -> None:
    path = written(tmp_path, SPECIFICATION.replace("from: reading,", "from: readings,"))
    assert size_of(read_pipeline(path)) == "1 source, 0 steps, 1 flow"
    assert as_plain(path, ()) == {"file": str(path), "valid": True, "problems": []}


def test_a_problem_without_a_line_is_plain_too() -> None:
    problem = Problem(Place("iot.yaml"), "The file is empty.")
    assert as_plain(Path("iot.yaml"), [problem])["problems"] == [
        {"file": "iot.yaml", "line": None, "column": None, "sentence": "The file is empty."}
    ]
