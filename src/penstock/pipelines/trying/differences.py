"""What a dataset should have held and what it held, so that a person sees where they part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import types as spark

from penstock.pipelines.trying.matching import Matching, Row, differing, match_rows

# More than this of one kind is counted and not listed.
ROWS_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """The row that came closest to one that is missing, and where it differs."""

    row: Row
    differs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A row that was expected and did not come."""

    row: Row
    nearest: Nearest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One dataset of one case."""

    dataset: str
    matched: int
    missing: tuple[Missing, ...] = ()
    unexpected: tuple[Row, ...] = ()

    @property
    def is_same(self) -> bool:
        return not self.missing and not self.unexpected


def compare(
    dataset: str, expected: Sequence[Row], found: Sequence[Row], schema: spark.StructType
) -> Comparison:
    """`expected` has values of the schema's types, and only the columns that are to be compared."""
    matching = match_rows(expected, found, schema)
    rest = [found[index] for index in matching.unexpected]
    missing = [expected[index] for index in matching.missing]
    shown = _compared_columns(expected, schema)
    return Comparison(
        dataset=dataset,
        matched=_matched(matching),
        missing=tuple(Missing(row=row, nearest=_nearest(row, rest, schema)) for row in missing),
        unexpected=tuple({name: row.get(name) for name in shown} for row in rest),
    )


def _matched(matching: Matching) -> int:
    return len(matching.pairs)


def _compared_columns(expected: Sequence[Row], schema: spark.StructType) -> list[str]:
    """Those that some expected row names; all of them when no row is expected."""
    named = {name for row in expected for name in row}
    return [name for name in schema.names if name in named or not named]


def _nearest(wanted: Row, rest: Sequence[Row], schema: spark.StructType) -> Nearest | None:
    """The left-over row with the fewest differences, if it agrees in anything at all."""
    candidates = [(differing(wanted, row, schema), row) for row in rest]
    candidates = [one for one in candidates if len(one[0]) < len(wanted)]
    if not candidates:
        return None
    differs, row = min(candidates, key=lambda one: len(one[0]))
    return Nearest(row={name: row.get(name) for name in differs}, differs=differs)


def lines_of(comparison: Comparison) -> list[str]:
    """For people: a heading, then the rows."""
    lines = [f"{comparison.dataset}: {_summary(comparison)}"]
    for missing in comparison.missing[:ROWS_SHOWN_MAX]:
        lines.append(f"  missing     {shown_row(missing.row)}")
        if missing.nearest is not None:
            lines.append(f"    nearest   has {shown_row(missing.nearest.row)}")
    lines += _more(len(comparison.missing), "missing")
    lines += [f"  unexpected  {shown_row(row)}" for row in comparison.unexpected[:ROWS_SHOWN_MAX]]
    return lines + _more(len(comparison.unexpected), "unexpected")


def _summary(comparison: Comparison) -> str:
    parts = [f"{comparison.matched} as expected"]
    if comparison.missing:
        parts.append(f"{len(comparison.missing)} missing")
    if comparison.unexpected:
        parts.append(f"{len(comparison.unexpected)} unexpected")
    return ", ".join(parts) + "."


def _more(number: int, kind: str) -> list[str]:
    return [f"  and {number - ROWS_SHOWN_MAX} more {kind}"] if number > ROWS_SHOWN_MAX else []


def shown_row(row: Row) -> str:
    return ", ".join(f"{name}: {shown(value)}" for name, value in row.items()) or "(no columns)"


def shown(value: Any) -> str:
    """As it could stand in the specification."""
    plain_value = plain(value)
    if isinstance(plain_value, dict):
        return "{" + shown_row(plain_value) + "}"
    if isinstance(plain_value, list):
        return "[" + ", ".join(shown(item) for item in plain_value) + "]"
    if isinstance(plain_value, str) and not isinstance(value, str | bytes):
        return plain_value
    if isinstance(plain_value, str):
        return '"' + plain_value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if plain_value is None or isinstance(plain_value, bool):
        return {None: "null", True: "true", False: "false"}[plain_value]
    return repr(plain_value)


def plain(value: Any) -> Any:
    """As JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, Decimal | date):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _moment(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat()
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
