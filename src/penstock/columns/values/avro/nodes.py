"""The tree of an Avro schema as decoding sees it.

The types that values get are those of Spark's own `from_avro`, so that a job can change from one
to the other: enums are STRING, a union with null is the other type, {int, long} is BIGINT, {float,
double} is DOUBLE, any other union is a STRUCT<member0, member1, ...> with one member set. A logical
type that Spark has no type for (time, duration, uuid, nanoseconds) stays what it is written as.
"""

from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    """Every type without children, logical types apart from what they are written as."""

    NULL = auto()
    BOOLEAN = auto()
    INT = auto()
    LONG = auto()
    FLOAT = auto()
    DOUBLE = auto()
    BYTES = auto()
    STRING = auto()
    FIXED = auto()
    ENUM = auto()
    DATE = auto()
    TIMESTAMP_MILLIS = auto()
    TIMESTAMP_MICROS = auto()
    LOCAL_TIMESTAMP_MILLIS = auto()
    LOCAL_TIMESTAMP_MICROS = auto()
    DECIMAL = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """`size` is that of a fixed; None where a length is written before the bytes."""

    path: str
    kind: Kind
    size: int | None = None
    symbols: tuple[str, ...] = ()
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    path: str
    fields: tuple[tuple[str, "Node"], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    path: str
    item: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """A map, whose keys are strings."""

    path: str
    value: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    """`branches` in the order of the schema; None is the null branch."""

    path: str
    branches: tuple["Node | None", ...]

    @property
    def nullable(self) -> bool:
        return None in self.branches

    @property
    def members(self) -> tuple["Node", ...]:
        return tuple(branch for branch in self.branches if branch is not None)

    @property
    def widened(self) -> Kind | None:
        """The kind that holds all members without loss, where they are numbers of one sort."""
        kinds = {member.kind if isinstance(member, Leaf) else None for member in self.members}
        if kinds == {Kind.INT, Kind.LONG}:
            return Kind.LONG
        return Kind.DOUBLE if kinds == {Kind.FLOAT, Kind.DOUBLE} else None


Node = Leaf | Record | Items | Pairs | Union


def bytes_min(node: Node) -> int:
    """The fewest bytes that a value can take; a decoder bounds the count of items by it."""
    match node:
        case Leaf(kind=Kind.NULL):
            return 0
        case Leaf(kind=Kind.FLOAT):
            return 4
        case Leaf(kind=Kind.DOUBLE):
            return 8
        case Leaf(size=int(size)):
            return size
        case Record():
            return sum(bytes_min(field) for _, field in node.fields)
        case _:
            return 1
