"""Compiling a schema into the program that the walk runs for each row."""

from dataclasses import dataclass, field
from itertools import count

from penstock.columns.values.avro import codes
from penstock.columns.values.avro.nodes import Items, Kind, Leaf, Node, Pairs, Record, Union
from penstock.columns.values.avro.shapes import (
    ItemsShape,
    LeafShape,
    MembersShape,
    OptionalShape,
    PairsShape,
    RecordShape,
    Shape,
    WidenedShape,
    columns_of,
    shape_of,
)

INT_BOUNDS = (-(1 << 31), (1 << 31) - 1)
LONG_BOUNDS = (-(1 << 63), (1 << 63) - 1)
# What Spark's DATE and TIMESTAMP hold: the years 1 to 9999.
DATE_BOUNDS = (-719_162, 2_932_896)
MILLIS_BOUNDS = (-62_135_596_800_000, 253_402_300_799_999)
MICROS_BOUNDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)

_BOUNDS = {
    Kind.INT: INT_BOUNDS,
    Kind.LONG: LONG_BOUNDS,
    Kind.DATE: DATE_BOUNDS,
    Kind.TIMESTAMP_MILLIS: MILLIS_BOUNDS,
    Kind.LOCAL_TIMESTAMP_MILLIS: MILLIS_BOUNDS,
    Kind.TIMESTAMP_MICROS: MICROS_BOUNDS,
    Kind.LOCAL_TIMESTAMP_MICROS: MICROS_BOUNDS,
}
_SIMPLE = {
    Kind.BOOLEAN: codes.BOOLEAN,
    Kind.FLOAT: codes.FLOAT,
    Kind.DOUBLE: codes.DOUBLE,
    Kind.BYTES: codes.BYTES,
    Kind.STRING: codes.TEXT,
}
_SIGN_BIT = -(1 << 63)


@dataclass(slots=True, kw_only=True)
class Program:
    """Instructions as parallel lists, the table they point into, and where each one reads."""

    shape: Shape
    column_count: int
    codes: list[int] = field(default_factory=list)
    a: list[int] = field(default_factory=list)
    b: list[int] = field(default_factory=list)
    low: list[int] = field(default_factory=list)
    high: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    depth: int = 0

    def add(
        self, code: int, path: str, *, a: int = 0, b: int = 0, low: int = 0, high: int = 0
    ) -> int:
        for column, number in zip(
            (self.codes, self.a, self.b, self.low, self.high), (code, a, b, low, high), strict=True
        ):
            column.append(number)
        self.paths.append(path)
        return len(self.codes) - 1

    def tabulate(self, numbers: list[int]) -> int:
        """Where in the table the numbers begin."""
        self.table.extend(numbers)
        return len(self.table) - len(numbers)

    @property
    def row_columns(self) -> list[int]:
        return list(columns_of(self.shape))


def compile_program(node: Node) -> Program:
    numbers = count()
    shape = shape_of(node, numbers)
    program = Program(shape=shape, column_count=next(numbers))
    _Compiler(program).value(node, shape, 0)
    program.add(codes.END, "")
    return program


class _Compiler:
    def __init__(self, program: Program) -> None:
        self.program = program

    def value(self, node: Node, shape: Shape, depth: int) -> None:
        match node, shape:
            case Leaf(), LeafShape():
                self._leaf(node, shape)
            case Record(), RecordShape():
                for (_, field_node), field_shape in zip(node.fields, shape.fields, strict=True):
                    self.value(field_node, field_shape, depth)
            case Items(), ItemsShape():
                block = self._loop(shape.counts, node.path, depth)
                self.value(node.item, shape.item, depth + 1)
                self._close(block, node.path)
            case Pairs(), PairsShape():
                block = self._loop(shape.counts, node.path, depth)
                self._leaf(shape.key.leaf, shape.key)
                self.value(node.value, shape.value, depth + 1)
                self._close(block, node.path)
            case Union(), _:
                self._union(node, shape, depth)
            case _:
                raise AssertionError(f"{shape} is not the shape of {node}")

    def _leaf(self, leaf: Leaf, shape: LeafShape) -> None:
        add, path = self.program.add, leaf.path
        a, b = (*shape.columns, 0, 0)[:2]
        if leaf.kind in _BOUNDS:
            low, high = _BOUNDS[leaf.kind]
            add(codes.LONG, path, a=a, low=low, high=high)
        elif leaf.kind in _SIMPLE:
            add(_SIMPLE[leaf.kind], path, a=a, b=b)
        elif leaf.kind is Kind.FIXED:
            assert leaf.size is not None
            add(codes.FIXED, path, a=a, b=b, low=leaf.size)
        elif leaf.kind is Kind.ENUM:
            add(codes.ENUM, path, a=a, high=len(leaf.symbols) - 1)
        elif leaf.kind is Kind.DECIMAL:
            code = codes.DECIMAL if leaf.size is None else codes.DECIMAL_FIXED
            bounds = self.program.tabulate(_decimal_bounds(leaf.precision))
            add(code, path, a=a, b=b, low=leaf.size or 0, high=bounds)
        else:
            assert leaf.kind is Kind.NULL

    def _loop(self, counts: int, path: str, depth: int) -> int:
        program = self.program
        program.depth = max(program.depth, depth + 1)
        program.add(codes.LOOP, path)
        block = program.add(codes.BLOCK, path, a=counts)
        program.add(codes.SIZE, path)
        return block

    def _close(self, block: int, path: str) -> None:
        self.program.b[block] = self.program.add(codes.NEXT, path, a=block) + 1

    def _union(self, node: Union, shape: Shape, depth: int) -> None:
        program = self.program
        targets = program.tabulate([0] * len(node.branches))
        program.add(codes.UNION, node.path, a=targets, high=len(node.branches) - 1)
        jumps, member = [], 0
        for n, branch in enumerate(node.branches):
            program.table[targets + n] = len(program.codes)
            if branch is None:
                self._fill(shape, node.path)
            else:
                self._branch(branch, member, shape, depth)
                member += 1
            jumps.append(program.add(codes.JUMP, node.path))
        for jump in jumps:
            program.a[jump] = len(program.codes)

    def _branch(self, branch: Node, member: int, shape: Shape, depth: int) -> None:
        add, path = self.program.add, branch.path
        match shape:
            case OptionalShape():
                add(codes.CONSTANT, path, a=shape.there, low=1)
                self._branch(branch, member, shape.inner, depth)
            case WidenedShape():
                assert isinstance(branch, Leaf)
                self._leaf(branch, LeafShape(leaf=branch, columns=(shape.column,)))
                add(codes.CONSTANT, path, a=shape.narrow, low=int(branch.kind is Kind.FLOAT))
            case MembersShape():
                for n, each in enumerate(shape.members):
                    if n == member:
                        add(codes.CONSTANT, path, a=each.there, low=1)
                        self.value(branch, each.inner, depth)
                    else:
                        self._fill(each, path)
            case _:
                self.value(branch, shape, depth)

    def _fill(self, shape: Shape, path: str) -> None:
        columns = list(columns_of(shape))
        start = self.program.tabulate(columns)
        self.program.add(codes.FILL, path, a=start, b=start + len(columns))


def _decimal_bounds(precision: int) -> list[int]:
    """The sign bit, then the largest and the smallest value as halves, low ones turned by it."""
    largest = 10**precision - 1
    return [_SIGN_BIT, *_halves(largest), *_halves(-largest)]


def _halves(number: int) -> tuple[int, int]:
    low = number & ((1 << 64) - 1)
    signed = low - (1 << 64) if low >= 1 << 63 else low
    return number >> 64, signed ^ _SIGN_BIT
