"""Functions are found in Python files without running them."""

from pathlib import Path

import pytest

from penstock.pipelines.specification.function_files import FunctionSignature, signature_of
from penstock.pipelines.specification.problems import Place, SpecificationRefused

PLACE = Place("iot.yaml", 3, 4)


def signature(folder: Path, text: str, name: str = "find") -> FunctionSignature:
    path = folder / "work.py"
    path.write_text(text)
    return signature_of(str(path), name, PLACE)


def test_parameters_are_inputs_except_the_reserved_and_those_with_a_default(tmp_path: Path) -> None:
    text = (
        "raise SystemExit\n"
        "@decorated\n"
        "def find(readings, spark, limit=3, *, rooms, parameters, factor=2): ...\n"
    )
    found = signature(tmp_path, text)
    assert found.inputs == ("readings", "rooms")
    assert found.parameters == ("readings", "spark", "limit", "rooms", "parameters", "factor")
    assert found.place.line == 3


def test_of_two_functions_of_a_name_the_later_one_counts(tmp_path: Path) -> None:
    assert signature(tmp_path, "def find(a): ...\ndef find(b): ...\n").inputs == ("b",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "def fined(a): ...",
            "iot.yaml:3:4: The file work.py does not define a function find; the nearest is fined.",
        ),
        ("def find(a:", "{file}:1:9: This is not valid Python: '(' was never closed."),
        (
            "async def find(a): ...",
            "{file}:1:1: The function find is async, which a pipeline can't call.",
        ),
        (
            "\ndef find(*all): ...",
            "{file}:2:1: The function find must name its parameters, without * and **: "
            "they are the datasets that it takes.",
        ),
        (
            "def find(a, /): ...",
            "{file}:1:1: The function find has parameters that can't be given by name: "
            "leave out the / after them.",
        ),
        (
            "x = '\0'",
            "{file}",
        ),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SpecificationRefused) as refused:
        signature(tmp_path, text)
    (found,) = refused.value.problems
    assert str(found).startswith(problem.format(file=tmp_path / "work.py"))
