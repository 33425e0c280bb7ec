"""Rows of one partition of a table belong together: finds them, and names their folder."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.pipelines.lakes.lake_table import LakeRefused

NAME_LENGTH_MAX = 60
_ODD = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class Partition:
    """One value per partition column, as text; None is null."""

    names: tuple[str, ...]
    values: tuple[str | None, ...]

    @property
    def folder(self) -> str:
        """Names are for people: they hold no `=`, which readers would take a column from."""
        parts = zip(self.names, self.values, strict=True)
        return "/".join(f"{_safe(_folder_name(name))}-{_safe(value)}" for name, value in parts)


def column_of(text: str) -> str:
    """The column that is partitioned by: `at` of `at`, and of `day(at)`."""
    if "(" not in text:
        return text
    from penstock.pipelines.lakes.iceberg_partitions import partition_column

    return partition_column(text)


def check_partition_columns(schema: pa.Schema, partition_by: Sequence[str], table: str) -> None:
    """Refuse columns that aren't there, or whose values are no good as the name of a partition."""
    columns = [column_of(text) for text in partition_by]
    for text, column in zip(partition_by, columns, strict=True):
        if column not in schema.names:
            raise LakeRefused(
                f"The table {table!r} can't be partitioned by {text!r}:"
                f" the rows have no column {column!r}."
            )
        kind = schema.field(column).type
        if not _is_countable(kind):
            raise LakeRefused(
                f"The table {table!r} can't be partitioned by the column {column!r},"
                f" whose type is {kind}."
            )
        if partition_by.count(text) > 1:
            raise LakeRefused(f"The table {table!r} is partitioned by {text!r} twice.")
    if partition_by and set(schema.names) == set(columns):
        raise LakeRefused(f"The table {table!r} needs a column that it is not partitioned by.")


def split(
    batch: pa.RecordBatch, partition_by: tuple[str, ...]
) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """The rows of each partition, in the order that they had."""
    if batch.num_rows == 0:
        return
    if not partition_by:
        yield Partition((), ()), batch
        return
    encoded = [_encode(_values(text, batch)) for text in partition_by]
    codes = _combined([numbers for numbers, _ in encoded])
    _, firsts, groups = np.unique(codes, return_index=True, return_inverse=True)
    if len(firsts) == 1:
        yield _partition_at(0, partition_by, encoded), batch
        return
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups))
    begin = 0
    for first, end in zip(firsts, ends, strict=True):
        rows = batch.take(pa.array(order[begin:end]))
        yield _partition_at(int(first), partition_by, encoded), rows
        begin = int(end)


_Encoded = tuple[Any, pa.Array]


def _encode(column: pa.Array) -> _Encoded:
    dictionary = column.dictionary_encode(null_encoding="encode")
    numbers = dictionary.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers, dictionary.dictionary


def _combined(columns: list[Any]) -> Any:
    """One number per row that is equal where all columns are; never more of them than rows."""
    combined = columns[0]
    for numbers in columns[1:]:
        combined = combined * (int(numbers.max()) + 1) + numbers
        _, combined = np.unique(combined, return_inverse=True)
    return combined


def _values(text: str, batch: pa.RecordBatch) -> pa.Array:
    column = batch.column(batch.schema.get_field_index(column_of(text)))
    if "(" not in text:
        return column
    from penstock.pipelines.lakes.iceberg_partitions import partition_values

    return partition_values(text, column)


def _partition_at(row: int, names: tuple[str, ...], encoded: list[_Encoded]) -> Partition:
    values = tuple(_text_of(dictionary[int(numbers[row])]) for numbers, dictionary in encoded)
    return Partition(names, values)


def _text_of(value: pa.Scalar) -> str | None:
    try:
        return value_text(value.as_py())
    except (OverflowError, ValueError):
        # A date before the year 1 or after 9999, which Python can't hold.
        return str(value.cast(pa.string()).as_py())


def value_text(value: Any) -> str | None:
    """As Delta's log spells the values of partition columns."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            return timestamp_text(value, " " if value.tzinfo is None else "T")
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case _:
            return str(value)


def timestamp_text(value: datetime, separator: str) -> str:
    """To the microsecond, in UTC if it has a zone; years have four digits, as `%Y` would not."""
    text = value.replace(tzinfo=None).isoformat(separator, "microseconds")
    if value.tzinfo is None:
        return text
    assert not value.utcoffset(), "All times with a zone are in UTC."
    return f"{text}Z"


def _folder_name(text: str) -> str:
    if "(" not in text:
        return text
    from penstock.pipelines.lakes.iceberg_partitions import partition_folder

    return partition_folder(text)


def _safe(value: str | None) -> str:
    """Letters, digits and a few signs; whatever had to be changed is told apart by a checksum."""
    if value is None:
        return "null"
    name = _ODD.sub("_", value)[:NAME_LENGTH_MAX]
    if name == value and value not in ("", "null"):
        return name
    return f"{name}-{hashlib.sha256(value.encode()).hexdigest()[:12]}"


def _is_countable(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
    )
