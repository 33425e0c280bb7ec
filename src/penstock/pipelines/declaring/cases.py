"""Test cases as a Python file gives them; their values keep their Python types."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.pipelines.declaring.declarations import Declarations
from penstock.pipelines.specification.model import Case, Row
from penstock.pipelines.specification.problems import Place


def case_of(
    declarations: Declarations,
    name: str,
    given: Mapping[str, Any],
    expect: Mapping[str, Any],
    place: Place,
) -> Case:
    """The case, with problems reported where rows are not rows."""
    reader = _CaseReader(declarations, name, place)
    return Case(
        name=name,
        given={source: reader.batches(source, rows) for source, rows in given.items()},
        expected={dataset: reader.rows(dataset, rows) for dataset, rows in expect.items()},
        place=place,
    )


class _CaseReader:
    def __init__(self, declarations: Declarations, case: str, place: Place) -> None:
        self._declarations = declarations
        self._case = case
        self._place = place

    def batches(self, source: str, rows: Any) -> tuple[tuple[Row, ...], ...]:
        """A list of rows is one micro-batch; a list of lists has one for each."""
        if _is_list(rows) and rows and all(_is_list(batch) for batch in rows):
            return tuple(self.rows(source, batch) for batch in rows)
        return (self.rows(source, rows),)

    def rows(self, dataset: str, rows: Any) -> tuple[Row, ...]:
        if not _is_list(rows) or not all(_is_row(row) for row in rows):
            said = "must be a list of rows, each a mapping of columns to values"
            sentence = f"In the test {self._case!r}, {dataset} {said}."
            self._declarations.problem(self._place, sentence)
            return ()
        return tuple(dict(row) for row in rows)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_row(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
