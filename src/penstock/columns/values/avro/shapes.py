"""Which columns of cells hold a value of each node; a column has a number and nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from penstock.columns.values.avro.nodes import Items, Kind, Leaf, Node, Pairs, Record, Union

# Kinds whose values take two columns: start and length, or the halves of a decimal.
_TWO_COLUMNS = {Kind.BYTES, Kind.STRING, Kind.FIXED, Kind.DECIMAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafShape:
    leaf: Leaf
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordShape:
    names: tuple[str, ...]
    fields: tuple["Shape", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsShape:
    counts: int
    item: "Shape"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsShape:
    counts: int
    key: LeafShape
    value: "Shape"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalShape:
    """`there` holds 1 where the value is, and 0 where it is null."""

    there: int
    inner: "Shape"


@dataclass(frozen=True, slots=True, kw_only=True)
class WidenedShape:
    """Numbers of two widths in one column; `narrow` holds 1 where it is a FLOAT's bits."""

    kind: Kind
    column: int
    narrow: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersShape:
    members: tuple[OptionalShape, ...]


Shape = (
    LeafShape | RecordShape | ItemsShape | PairsShape | OptionalShape | WidenedShape | MembersShape
)


def shape_of(node: Node, numbers: "count[int]") -> Shape:
    match node:
        case Leaf():
            return _leaf(node, numbers)
        case Record():
            fields = tuple(shape_of(field, numbers) for _, field in node.fields)
            return RecordShape(names=tuple(name for name, _ in node.fields), fields=fields)
        case Items():
            return ItemsShape(counts=next(numbers), item=shape_of(node.item, numbers))
        case Pairs():
            key = _leaf(Leaf(path=f"{node.path}.key".lstrip("."), kind=Kind.STRING), numbers)
            return PairsShape(counts=next(numbers), key=key, value=shape_of(node.value, numbers))
        case Union():
            return _union(node, numbers)


def _leaf(leaf: Leaf, numbers: "count[int]") -> LeafShape:
    needed = 0 if leaf.kind is Kind.NULL else 2 if leaf.kind in _TWO_COLUMNS else 1
    return LeafShape(leaf=leaf, columns=tuple(next(numbers) for _ in range(needed)))


def _union(node: Union, numbers: "count[int]") -> Shape:
    if node.nullable:
        return OptionalShape(there=next(numbers), inner=_members(node, numbers))
    return _members(node, numbers)


def _members(node: Union, numbers: "count[int]") -> Shape:
    widened = node.widened
    if widened is not None:
        return WidenedShape(kind=widened, column=next(numbers), narrow=next(numbers))
    if len(node.members) == 1:
        return shape_of(node.members[0], numbers)
    members = [
        OptionalShape(there=next(numbers), inner=shape_of(member, numbers))
        for member in node.members
    ]
    return MembersShape(members=tuple(members))


def columns_of(shape: Shape) -> Iterator[int]:
    """The columns with exactly one cell for each value of the shape: not those of its items."""
    match shape:
        case LeafShape():
            yield from shape.columns
        case RecordShape():
            for field in shape.fields:
                yield from columns_of(field)
        case ItemsShape() | PairsShape():
            yield shape.counts
        case OptionalShape():
            yield shape.there
            yield from columns_of(shape.inner)
        case WidenedShape():
            yield shape.column
            yield shape.narrow
        case MembersShape():
            for member in shape.members:
                yield from columns_of(member)
