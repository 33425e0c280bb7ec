"""Iceberg's schemas and partition specifications, made from Arrow's and compared with them."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.pipelines.lakes.iceberg_partitions import (
    PartitionField,
    check_transform,
    partition_field,
)
from penstock.pipelines.lakes.lake_table import LakeRefused
from penstock.pipelines.lakes.partition_folders import check_partition_columns

_FIELD_ID = b"PARQUET:field_id"
# Iceberg numbers the fields of a partition specification from here.
_PARTITION_ID_FIRST = 1000
# pyiceberg prefers types for values beyond 2 GB, which Spark does not take.
_SMALL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def iceberg_schema(schema: pa.Schema, table: str) -> Any:
    """All columns are optional: whether one may be null changes from batch to batch in Spark."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    numbers = itertools.count(1)
    fields = []
    for field in schema:
        numbered = _numbered(field, numbers)
        try:
            pyarrow_to_schema(pa.schema([numbered]))
        except Exception as failure:
            raise LakeRefused(
                f"The column {field.name!r} can't be kept in the Iceberg table {table!r}:"
                f" Iceberg has no type for {field.type}."
            ) from failure
        fields.append(numbered)
    try:
        return pyarrow_to_schema(pa.schema(fields))
    except ValueError as failure:
        # Iceberg names what is inside a column `column.field`, which may be a column's name too.
        raise LakeRefused(
            f"The rows can't be kept in the Iceberg table {table!r}, because two columns have the"
            f" same name in it: {failure}."
        ) from failure


def arrow_schema(schema: Any) -> pa.Schema:
    """Of an Iceberg schema, without numbers and with every column optional."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    found = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.schema([_plain(field) for field in found])


def change_columns(transaction: Any, columns: Sequence[pa.Field], table: str) -> None:
    """Part of a commit: add columns and fields that the table lacks, and widen those it has."""
    with transaction.update_schema() as update:
        update.union_by_name(iceberg_schema(pa.schema(columns), table))


def refuse_required(held: Any, given: pa.Schema, changed: Sequence[pa.Field], table: str) -> None:
    """Columns of tables that others made: rows must not lack them, and they stay required."""
    touched = {field.name for field in changed}
    for field in held.fields:
        if field.required and (field.name in touched or field.name not in given.names):
            raise LakeRefused(
                f"The column {field.name!r} of the table {table!r} may not be null, but rows may"
                " have null there."
            )


def partition_fields(
    schema: pa.Schema, partition_by: Sequence[str], table: str
) -> tuple[PartitionField, ...]:
    """Checked against the columns."""
    fields = tuple(partition_field(text) for text in partition_by)
    check_partition_columns(schema, [str(field) for field in fields], table)
    for field in fields:
        check_transform(field, schema.field(field.column).type)
        _check_name(field, schema, table)
    return fields


def _check_name(field: PartitionField, schema: pa.Schema, table: str) -> None:
    if "." in field.column:
        # pyiceberg takes it for a field inside of a column, and would note each partition as null.
        raise LakeRefused(
            f"The Iceberg table {table!r} can't be partitioned by the column {field.column!r},"
            " because of the dot in its name."
        )
    if field.name != field.column and field.name in schema.names:
        raise LakeRefused(
            f"The Iceberg table {table!r} can't be partitioned by {str(field)!r}, because the rows"
            f" have a column {field.name!r}, which is what Iceberg calls the partition."
        )


def partition_specification(schema: Any, fields: Sequence[PartitionField]) -> Any:
    """For an Iceberg schema; the fields are numbered as Iceberg's own writers do."""
    from pyiceberg.partitioning import PartitionField as IcebergField
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.transforms import parse_transform

    return PartitionSpec(
        *(
            IcebergField(
                source_id=schema.find_field(field.column).field_id,
                field_id=_PARTITION_ID_FIRST + place,
                transform=parse_transform(field.transform),
                name=field.name,
            )
            for place, field in enumerate(fields)
        )
    )


def partition_by_of(table: Any) -> list[str]:
    """How a table is cut, in the words of a specification as far as they suffice."""
    schema = table.schema()
    return [
        str(
            PartitionField(
                column=schema.find_column_name(field.source_id), transform=str(field.transform)
            )
        )
        for field in table.spec().fields
    ]


def _numbered(field: pa.Field, numbers: Iterator[int], *, nullable: bool = True) -> pa.Field:
    number = str(next(numbers)).encode()
    kind = _rebuilt(field.type, lambda inner, null: _numbered(inner, numbers, nullable=null))
    return pa.field(field.name, kind, nullable, {_FIELD_ID: number})


def _plain(field: pa.Field, *, nullable: bool = True) -> pa.Field:
    kind = _rebuilt(field.type, lambda inner, null: _plain(inner, nullable=null))
    return pa.field(field.name, kind, nullable)


def _rebuilt(kind: pa.DataType, change: Any) -> pa.DataType:
    """A type with each field inside it changed; only keys of maps may not be null."""
    if pa.types.is_struct(kind):
        return pa.struct([change(kind.field(place), True) for place in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(change(kind.key_field, False), change(kind.item_field, True))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(change(kind.value_field, True))
    return _SMALL.get(kind, kind)
