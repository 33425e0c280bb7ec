"""Whether rows fit a table, and what the table has to become to take them where it may change.

A table that evolves gains columns, and columns and fields of wider types. It never loses a column
and no type in it ever becomes narrower: rows without a column have null in it, and values of a
narrower type are written in the table's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.pipelines.lakes.lake_table import LakeRefused
from penstock.pipelines.lakes.partition_folders import column_of

# Each type holds all values of those before it.
_WHOLE_NUMBERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FLOATS = (pa.float32(), pa.float64())


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What becomes of a table and of rows when the one takes the others."""

    table: pa.Schema
    changed: tuple[pa.Field, ...]
    """The table's columns that are new, or of another type than before; often none."""
    rows: pa.Schema
    """How the files hold the rows."""


class _Misfit(Exception):
    """The text says why, after "The rows do not fit the table"."""


def fit(
    held: pa.Schema,
    given: pa.Schema,
    held_partition_by: Sequence[str],
    partition_by: Sequence[str],
    table: str,
    *,
    evolves: bool = False,
    never_widens: str | None = None,
) -> Fit:
    """Refuse rows that are not like those of the table; the order of columns may differ.

    `evolves` lets the table change; `never_widens` says why the types of its columns can't.
    """
    if list(held_partition_by) != list(partition_by):
        raise LakeRefused(
            f"The table {table!r} is partitioned by {_names(held_partition_by)},"
            f" not by {_names(partition_by)}."
        )
    if (difference := _difference(held, given)) is None:
        return Fit(table=held, changed=(), rows=given)
    fixed = {column_of(text): "the table is partitioned by it" for text in partition_by}
    if never_widens is not None:
        fixed = dict.fromkeys(held.names, never_widens) | fixed
    try:
        found = _evolved(held, given, fixed)
    except _Misfit as misfit:
        raise LakeRefused(f"The rows do not fit the table {table!r}: {misfit}.") from None
    if not evolves:
        raise LakeRefused(
            f"The rows do not fit the table {table!r}: {difference};"
            " `evolve: true` on the sink lets the table take them."
        )
    return found


def narrows(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a type, or of what is inside it, may not have room in another."""
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        common = [field.name for field in wanted if found.get_field_index(field.name) >= 0]
        return any(narrows(found.field(name).type, wanted.field(name).type) for name in common)
    if _is_list(found) and _is_list(wanted):
        return narrows(found.value_type, wanted.value_type)
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return narrows(found.key_type, wanted.key_type) or narrows(
            found.item_type, wanted.item_type
        )
    return _is_wider(found, wanted)


def _difference(held: pa.Schema, given: pa.Schema) -> str | None:
    for field in given:
        if field.name not in held.names:
            return f"it has no column {field.name!r}"
        if not _is_same(held.field(field.name).type, field.type):
            return _types_differ(held.field(field.name), field)
    for field in held:
        if field.name not in given.names:
            return f"they have no column {field.name!r}"
    return None


def _evolved(held: pa.Schema, given: pa.Schema, fixed: dict[str, str]) -> Fit:
    """`fixed` says of columns why they can't have another type."""
    columns = {field.name: field for field in held}
    known = {name.lower(): name for name in columns}
    changed, rows = [], []
    for field in given:
        if field.name not in columns:
            if (other := known.get(field.name.lower())) is not None:
                raise _Misfit(
                    f"its column {other!r} and theirs, {field.name!r}, differ only in their case"
                )
            columns[field.name] = pa.field(field.name, field.type)
            changed.append(columns[field.name])
            rows.append(field)
            continue
        old = columns[field.name]
        kinds = _merged(old.type, field.type)
        if kinds is None:
            raise _Misfit(_types_differ(old, field))
        if not _is_same(old.type, kinds[0]):
            if _widened(old.type, kinds[0]) and field.name in fixed:
                raise _Misfit(f"{_types_differ(old, field)}, and {fixed[field.name]}")
            columns[field.name] = old.with_type(kinds[0])
            changed.append(columns[field.name])
        rows.append(field.with_type(kinds[1]))
    return Fit(
        table=pa.schema(list(columns.values())), changed=tuple(changed), rows=pa.schema(rows)
    )


def _merged(held: pa.DataType, given: pa.DataType) -> tuple[pa.DataType, pa.DataType] | None:
    """The type that holds the values of both, and how those of `given` are written; else None."""
    if _is_same(held, given):
        return held, given
    if pa.types.is_struct(held) and pa.types.is_struct(given):
        return _merged_structs(held, given)
    if _is_list(held) and _is_list(given):
        inner = _merged(held.value_type, given.value_type)
        return inner and (
            pa.list_(held.value_field.with_type(inner[0])),
            pa.list_(given.value_field.with_type(inner[1])),
        )
    if pa.types.is_map(held) and pa.types.is_map(given):
        inner = _merged(held.item_type, given.item_type)
        if inner is None or not _is_same(held.key_type, given.key_type):
            return None
        return (
            pa.map_(held.key_field, held.item_field.with_type(inner[0])),
            pa.map_(given.key_field, given.item_field.with_type(inner[1])),
        )
    if _is_wider(held, given):
        return held, held
    return (given, given) if _is_wider(given, held) else None


def _merged_structs(
    held: pa.StructType, given: pa.StructType
) -> tuple[pa.DataType, pa.DataType] | None:
    """New fields come after those that are there: readers go through a struct in its order."""
    names = [field.name for field in given]
    common = [field.name for field in held if field.name in names]
    if names[: len(common)] != common:
        return None
    known = {field.name.lower() for field in held}
    fields = {field.name: field for field in held}
    rows = []
    for field in given:
        if field.name not in fields:
            if field.name.lower() in known:
                return None
            fields[field.name] = pa.field(field.name, field.type)
            rows.append(field)
            continue
        inner = _merged(fields[field.name].type, field.type)
        if inner is None:
            return None
        fields[field.name] = fields[field.name].with_type(inner[0])
        rows.append(field.with_type(inner[1]))
    return pa.struct(list(fields.values())), pa.struct(rows)


def _widened(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether more than fields of structs came to a type."""
    return narrows(new, old)


def _is_wider(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether a type holds all values of another, and more."""
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        return bool(one.scale == other.scale and one.precision > other.precision)
    for kinds in (_WHOLE_NUMBERS, _FLOATS):
        if one in kinds and other in kinds:
            return kinds.index(one) > kinds.index(other)
    return False


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


def _types_differ(held: pa.Field, given: pa.Field) -> str:
    return (
        f"its column {held.name!r} is {_type_text(held.type)},"
        f" and theirs is {_type_text(given.type)}"
    )


def _type_text(kind: pa.DataType) -> str:
    return str(kind).replace(" not null", "")


def _names(columns: Sequence[str]) -> str:
    return ", ".join(repr(column) for column in columns) if columns else "nothing"
