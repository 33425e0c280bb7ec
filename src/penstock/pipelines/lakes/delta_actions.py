"""What Delta's log says of a data file, and of tables that plain files can't be added to."""

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import deltalake
import pyarrow as pa
from deltalake.transaction import AddAction

from penstock.pipelines.lakes.lake_table import DataFile, LakeRefused
from penstock.pipelines.lakes.partition_folders import timestamp_text

# Spark's readers of Delta refuse a table with these in a column's name.
_NAME_SIGNS_REFUSED = frozenset(" ,;{}()\n\t=")
_TIME_TYPES = ("date", "timestamp", "timestamp_ntz")
_YEAR = re.compile(r"(?!0000)[0-9]{4}-")
# `deltalake` takes a percent sign for the start of an escape, and a backslash for a slash.
_ROOT_SIGNS_REFUSED = frozenset("%\\")


def add_action(file: DataFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=dict(file.partition),
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=json.dumps(_statistics(file), allow_nan=False),
    )


def _statistics(file: DataFile) -> dict[str, Any]:
    columns = file.statistics
    least = {name: _bound(column.least) for name, column in columns.items()}
    greatest = {name: _bound(column.greatest) for name, column in columns.items()}
    return {
        "numRecords": file.rows,
        "minValues": {name: bound for name, bound in least.items() if bound is not None},
        "maxValues": {name: bound for name, bound in greatest.items() if bound is not None},
        "nullCount": {name: column.nulls for name, column in columns.items()},
    }


def _bound(value: Any) -> Any:
    """As JSON; None for what can't be said exactly, since readers skip files by it."""
    match value:
        case int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case datetime():
            return timestamp_text(value, "T")
        case date():
            return value.isoformat()
        case Decimal():
            number = float(value)
            return number if Decimal(repr(number)) == value else None
        case _:
            return None


def refuse_root(root: str) -> None:
    for sign in root:
        if sign in _ROOT_SIGNS_REFUSED or not sign.isprintable():
            raise LakeRefused(
                f"The path of the Delta table {root!r} has the character {sign!r},"
                " with which readers would not find it."
            )


def refuse_columns(schema: pa.Schema, partition_by: Sequence[str], table: str) -> None:
    """What Parquet holds, but Delta or one of its readers does not."""
    for field in schema:
        if _NAME_SIGNS_REFUSED.intersection(field.name):
            raise LakeRefused(
                f"The Delta table {table!r} can't have a column of the name {field.name!r}:"
                " Delta does not allow spaces or the characters , ; { } ( ) = there."
            )
        if _holds_time(field.type):
            raise LakeRefused(
                f"The column {field.name!r} has the type time, which Delta does not have."
            )
    for name in partition_by:
        if "(" in name:
            raise LakeRefused(
                f"The Delta table {table!r} can't be partitioned by {name!r}, only by columns."
            )
        if pa.types.is_decimal(schema.field(name).type):
            raise LakeRefused(
                f"The Delta table {table!r} can't be partitioned by the decimal column {name!r},"
                " which some readers of Delta get wrong."
            )


def _holds_time(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_time(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_time(kind))


def refuse_files(files: Sequence[DataFile], held: deltalake.Schema, table: str) -> None:
    """Values that the table can't hold, by what the tasks have seen."""
    for file in files:
        for name, value in file.partition.items():
            if value == "":
                raise LakeRefused(
                    f"The partition column {name!r} has a row with an empty text, which Delta"
                    f" can't tell from null: the table {table!r} does not take it."
                )
    _refuse_far_times(files, held, table)
    required = [field.name for field in held.fields if not field.nullable]
    for file in files:
        for name in required:
            if _may_hold_null(file, name):
                raise LakeRefused(
                    f"The column {name!r} of the table {table!r} may not be null,"
                    " but rows may have null there."
                )


def _refuse_far_times(files: Sequence[DataFile], held: deltalake.Schema, table: str) -> None:
    """As values of partitions, no reader of the log could take them."""
    times = {field.name for field in held.fields if str(field.type.type) in _TIME_TYPES}
    for file in files:
        for name in times.intersection(file.partition):
            value = file.partition[name]
            if value is not None and not _YEAR.match(value):
                raise LakeRefused(
                    f"The partition column {name!r} has a row with {value!r}, which is outside of"
                    f" the years 1 to 9999: the table {table!r} does not take it."
                )


def _may_hold_null(file: DataFile, column: str) -> bool:
    if column in file.partition:
        return file.partition[column] is None
    statistics = file.statistics.get(column)
    return statistics is None or statistics.nulls > 0


def refuse_table_to_write(configuration: Mapping[str, str], table: str) -> None:
    """Tables whose rules only a writer that sees each row can keep."""
    refuse_renamed_columns(configuration, table)
    for name in configuration:
        if name.startswith("delta.constraints."):
            raise LakeRefused(
                f"The Delta table {table!r} has the constraint"
                f" {name.removeprefix('delta.constraints.')!r}, which can't be checked here."
            )


def refuse_renamed_columns(configuration: Mapping[str, str], table: str) -> None:
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        raise LakeRefused(
            f"The columns of the Delta table {table!r} have other names in its files"
            " (delta.columnMapping.mode), which is not supported."
        )
