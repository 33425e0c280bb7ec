"""Proves that every specification in examples/ and in the documents is right, and does as it says.

Each is checked as `penstock pipeline validate` does, and its cases run as by `penstock pipeline
test`, all in one session.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.pipelines.checking.checking import check
from penstock.pipelines.specification.reading import read_pipeline
from penstock.pipelines.trying.cases import try_cases
from tests.documents import ROOT, Block, Document, documents

EXAMPLES = ROOT / "examples"
# What a page's specification may name: the functions and tables of the examples.
BESIDE = [EXAMPLES / "iot" / "anomalies.py", EXAMPLES / "rooms" / "rooms.csv"]
YAML_START = re.compile(r"^pipeline: ", re.M)
PYTHON_START = "from penstock import pipelines as dp"
# A block that begins so is a file that a later block of the same page names.
FILE_NAME = re.compile(r"^# (?P<name>[\w-]+\.(?:py|yaml|csv))\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """A file of an example, or a block of a page with the files that stand above it."""

    name: str
    folder: Path | None = None
    suffix: str
    text: str
    above: tuple[Block, ...] = ()


def of_examples() -> list[Specification]:
    files = [path for path in sorted(EXAMPLES.glob("*/*")) if path.suffix in (".yaml", ".py")]
    return [
        Specification(
            name=str(path.relative_to(ROOT)),
            folder=path.parent,
            suffix=path.suffix,
            text=path.read_text(),
        )
        for path in files
        if is_specification(path.suffix, path.read_text())
    ]


def of_documents() -> list[Specification]:
    return [found for document in documents() for found in of_document(document)]


def of_document(document: Document) -> list[Specification]:
    found: list[Specification] = []
    above: list[Block] = []
    for block in document.blocks("yaml", "python"):
        suffix = ".yaml" if block.language == "yaml" else ".py"
        if is_specification(suffix, block.text):
            name = f"{document.name}-{len(found) + 1}"
            text, files = block.text, tuple(above)
            found.append(Specification(name=name, suffix=suffix, text=text, above=files))
        elif FILE_NAME.match(block.text):
            above.append(block)
    return found


def is_specification(suffix: str, text: str) -> bool:
    return bool(YAML_START.search(text)) if suffix == ".yaml" else PYTHON_START in text


def lay_out(specification: Specification, folder: Path) -> Path:
    """The specification as a user has it: a file among those that it names."""
    if specification.folder is not None:
        shutil.copytree(specification.folder, folder, dirs_exist_ok=True)
    else:
        for file in BESIDE:
            shutil.copy(file, folder)
    for block in specification.above:
        match = FILE_NAME.match(block.text)
        assert match is not None
        (folder / match["name"]).write_text(block.text)
    path = folder / f"specification{specification.suffix}"
    path.write_text(specification.text)
    return path


SPECIFICATIONS = [*of_examples(), *of_documents()]


def test_there_are_examples() -> None:
    names = {specification.name for specification in SPECIFICATIONS}
    assert {
        "examples/iot/iot.yaml",
        "examples/orders/pipeline.yaml",
        "examples/rooms/rooms.py",
    } <= names


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=lambda one: one.name)
def test_specification(specification: Specification, spark: SparkSession, tmp_path: Path) -> None:
    pipeline = read_pipeline(lay_out(specification, tmp_path), {}, {})
    assert [str(problem) for problem in check(pipeline, spark)] == []
    outcomes = list(try_cases(pipeline, spark))
    assert [outcome for outcome in outcomes if not outcome.has_passed] == []
    if specification.folder is not None:
        assert outcomes, "an example shows how it is tested"
