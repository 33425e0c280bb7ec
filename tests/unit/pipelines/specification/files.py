"""YAML files for the tests of this folder."""

from pathlib import Path
from textwrap import dedent

import pytest

from penstock.pipelines.specification.model import Pipeline
from penstock.pipelines.specification.problems import SpecificationRefused
from penstock.pipelines.specification.reading import read_pipeline

# A pipeline that is whole; what a test is about comes before or after it. It takes lines 1 to 6.
SMALLEST = """\
pipeline: iot
sources:
  readings: {topic: readings}
  rooms: {files: rooms.csv, format: csv, schema: "sensor STRING", stream: false}
flows:
  shown: {from: readings, to: console}
"""


def read(
    folder: Path,
    text: str,
    *,
    given: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
) -> Pipeline:
    path = folder / "iot.yaml"
    path.write_text(dedent(text))
    return read_pipeline(path, given or {}, environment or {})


def problems(folder: Path, text: str, *, given: dict[str, str] | None = None) -> list[str]:
    """Each as line:column: sentence."""
    with pytest.raises(SpecificationRefused) as refused:
        read(folder, text, given=given)
    return [
        str(problem).removeprefix(f"{folder}/").removeprefix("iot.yaml:").lstrip()
        for problem in refused.value.problems
    ]
