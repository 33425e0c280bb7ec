"""What a struct looks like in one version: its fields in wire order, its least size."""

from typing import NamedTuple

from penstock.protocol.kafka.schema import NESTED, Field, Kind, Schema, schema_of, string


class Layout(NamedTuple):
    ordinary: list[Field]
    tagged: list[Field]
    # Declared, but not part of this version: such an attribute gets its default.
    absent: list[Field]


def layout_of(schema: Schema, version: int) -> Layout:
    layout = Layout([], [], [])
    for field in schema.fields:
        if not field.exists_in(version):
            layout.absent.append(field)
        elif field.tag is None:
            layout.ordinary.append(field)
        else:
            layout.tagged.append(field)
    layout.tagged.sort(key=lambda field: field.tag or 0)
    return layout


def size_min(element: type | Kind, version: int, flexible: bool) -> int:
    """The fewest bytes that an array element can take, which bounds how many can be left."""
    if isinstance(element, Kind):
        return _kind_size_min(element, flexible)
    ordinary = layout_of(schema_of(element), version).ordinary
    total = sum(_field_size_min(field, version, flexible) for field in ordinary)
    # An element that takes no bytes counts as one, else a length could not be bounded at all.
    return max(1, total + flexible)


def _field_size_min(field: Field, version: int, flexible: bool) -> int:
    if field.kind is NESTED:
        nullable = field.nullable_in(version)
        return 1 if nullable else size_min(field.element, version, flexible)
    return _kind_size_min(field.kind, flexible)


def _kind_size_min(kind: Kind, flexible: bool) -> int:
    if kind.size:
        return kind.size
    if flexible:
        return 1
    return 2 if kind is string else 4
