"""Why rows do not fit a table, by the name of the column."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.pipelines.lakes.lake_table import LakeRefused


def check_fit(
    held: pa.Schema,
    given: pa.Schema,
    held_partition_by: Sequence[str],
    partition_by: Sequence[str],
    table: str,
) -> None:
    """Refuse rows that are not like those of the table; the order of columns may differ."""
    for problem in _misfits(held, given):
        raise LakeRefused(f"The rows do not fit the table {table!r}: {problem}.")
    if list(held_partition_by) != list(partition_by):
        raise LakeRefused(
            f"The table {table!r} is partitioned by {_names(held_partition_by)},"
            f" not by {_names(partition_by)}."
        )


def _misfits(held: pa.Schema, given: pa.Schema) -> Iterator[str]:
    for field in given:
        if field.name not in held.names:
            yield f"it has no column {field.name!r}"
        elif not _is_same(held.field(field.name).type, field.type):
            yield (
                f"its column {field.name!r} is {_type_text(held.field(field.name).type)},"
                f" and theirs is {_type_text(field.type)}"
            )
    for field in held:
        if field.name not in given.names:
            yield f"they have no column {field.name!r}"


def _is_same(held: pa.DataType, given: pa.DataType) -> bool:
    """Equal but for what other writers of a table leave open: nullability, names, large texts."""
    if pa.types.is_struct(held) and pa.types.is_struct(given):
        names = [field.name for field in held]
        return names == [field.name for field in given] and all(
            _is_same(held.field(name).type, given.field(name).type) for name in names
        )
    if _is_list(held) and _is_list(given):
        return _is_same(held.value_type, given.value_type)
    if pa.types.is_map(held) and pa.types.is_map(given):
        return _is_same(held.key_type, given.key_type) and _is_same(held.item_type, given.item_type)
    return bool(_normal(held) == _normal(given))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _normal(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return kind


def _type_text(kind: pa.DataType) -> str:
    return str(kind).replace(" not null", "")


def _names(columns: Sequence[str]) -> str:
    return ", ".join(repr(column) for column in columns) if columns else "nothing"
