"""How a table of Iceberg's is cut: by a column's values, or by the day, hour, month or year of one.

Pure text and Arrow: Spark's tasks group rows by it while they write.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipelines.lakes.lake_table import LakeRefused

if TYPE_CHECKING:
    import pyarrow as pa

IDENTITY = "identity"
# Of each transform, how its values are written; Spark's SQL says `days`, Iceberg's tables `day`.
_FORMATS = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
_CALL = re.compile(r"\s*([A-Za-z_]+)\s*\(\s*(.+?)\s*\)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionField:
    """One part of `partition_by`: a column, and what is made of its values."""

    column: str
    transform: str = IDENTITY

    @property
    def name(self) -> str:
        """The field's name in the table, as Iceberg's own writers choose it."""
        return self.column if self.transform == IDENTITY else f"{self.column}_{self.transform}"

    def __str__(self) -> str:
        return self.column if self.transform == IDENTITY else f"{self.transform}({self.column})"


def partition_field(text: str) -> PartitionField:
    """`sensor`, `day(at)` or `days(at)`; other functions are refused."""
    call = _CALL.fullmatch(text)
    if call is None:
        return PartitionField(column=text.strip())
    transform = call[1].lower().removesuffix("s")
    if transform not in _FORMATS:
        raise LakeRefused(
            f"A table can't be partitioned by {text!r}:"
            " only columns and year(), month(), day() and hour() of a column are known."
        )
    return PartitionField(column=call[2].strip("`"), transform=transform)


def partition_column(text: str) -> str:
    """The column whose values decide: `at` of `day(at)`."""
    return partition_field(text).column


def partition_folder(text: str) -> str:
    """A name for folders: `at_day` of `day(at)`."""
    return partition_field(text).name


def check_transform(field: PartitionField, kind: "pa.DataType") -> None:
    """Refuse a column that has no such part."""
    import pyarrow as pa

    if field.transform == IDENTITY or pa.types.is_timestamp(kind):
        return
    if pa.types.is_date(kind) and field.transform != "hour":
        return
    raise LakeRefused(
        f"A table can't be partitioned by {str(field)!r}:"
        f" the column {field.column!r} is of type {kind}, which has no {field.transform}."
    )


def partition_values(text: str, column: "pa.Array") -> "pa.Array":
    """What rows are grouped by: the column itself, or `2026-01-31` for the day of each time.

    Times with a zone are cut in UTC, as Iceberg does.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    field = partition_field(text)
    check_transform(field, column.type)
    if field.transform == IDENTITY:
        return column
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    elif pa.types.is_date(kind):
        column = column.cast(pa.timestamp("s"))
    # Texts are made once per value and not once per row.
    encoded = pc.floor_temporal(column, unit=field.transform).dictionary_encode()
    texts = pc.strftime(encoded.dictionary, format=_FORMATS[field.transform])
    return texts.take(encoded.indices)
