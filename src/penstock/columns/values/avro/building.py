"""From columns of cells to an Arrow array, one column at a time."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.columns.values.arrays import (
    Validity,
    list_array,
    made,
    map_array,
    offsets_of,
    struct_array,
)
from penstock.columns.values.avro.nodes import Kind
from penstock.columns.values.avro.running import Int64s, Walked
from penstock.columns.values.avro.shapes import (
    ItemsShape,
    LeafShape,
    MembersShape,
    OptionalShape,
    PairsShape,
    RecordShape,
    Shape,
    WidenedShape,
)

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_LOCAL_TIMESTAMP = pa.timestamp("us")


class NotText(Exception):
    """A string of some row is not UTF-8; only a walk that checks them says which row's."""


def build(shape: Shape, walked: Walked, length: int, valid: Validity = None) -> pa.Array:
    """The array of `length` values; where `valid` is false there is none."""
    match shape:
        case LeafShape():
            return _leaf(shape, walked, length, valid)
        case RecordShape():
            fields = [build(field, walked, length) for field in shape.fields]
            return struct_array(shape.names, fields, length, valid)
        case MembersShape():
            members = [build(member, walked, length) for member in shape.members]
            names = tuple(f"member{n}" for n in range(len(members)))
            return struct_array(names, members, length, valid)
        case OptionalShape():
            there = walked.column(shape.there).astype(np.bool_)
            return build(shape.inner, walked, length, there if valid is None else there & valid)
        case WidenedShape():
            return _widened(shape, walked, length, valid)
        case ItemsShape():
            counts = walked.column(shape.counts)
            return list_array(build(shape.item, walked, int(counts.sum())), counts, valid)
        case PairsShape():
            counts = walked.column(shape.counts)
            keys = build(shape.key, walked, int(counts.sum()))
            return map_array(keys, build(shape.value, walked, len(keys)), counts, valid)


def _widened(shape: WidenedShape, walked: Walked, length: int, valid: Validity) -> pa.Array:
    cells = walked.column(shape.column)
    if shape.kind is Kind.LONG:
        return made(pa.int64(), length, valid, [pa.py_buffer(cells)])
    narrow = cells.astype(np.int32).view(np.float32).astype(np.float64)
    wide = np.where(walked.column(shape.narrow) == 1, narrow, cells.view(np.float64))
    return made(pa.float64(), length, valid, [pa.py_buffer(wide)])


def _leaf(shape: LeafShape, walked: Walked, length: int, valid: Validity) -> pa.Array:
    leaf = shape.leaf
    match leaf.kind:
        case Kind.NULL:
            return pa.nulls(length)
        case Kind.BYTES | Kind.FIXED | Kind.STRING:
            return _pieces(shape, walked, length, valid)
        case Kind.DECIMAL:
            halves = np.empty((length, 2), np.int64)
            halves[:, 1] = walked.column(shape.columns[0])
            halves[:, 0] = walked.column(shape.columns[1])
            kind = pa.decimal128(leaf.precision, leaf.scale)
            return made(kind, length, valid, [pa.py_buffer(halves)])
        case Kind.ENUM:
            symbols = pa.array(leaf.symbols, pa.string())
            numbers = walked.column(shape.columns[0]).astype(np.int32)
            indices = made(pa.int32(), length, valid, [pa.py_buffer(numbers)])
            return symbols.take(indices)
        case Kind.BOOLEAN:
            bits = np.packbits(walked.column(shape.columns[0]).astype(np.bool_), bitorder="little")
            return made(pa.bool_(), length, valid, [pa.py_buffer(bits)])
        case _:
            kind, values = _numbers(leaf.kind, walked.column(shape.columns[0]))
            return made(kind, length, valid, [pa.py_buffer(values)])


def _numbers(kind: Kind, cells: Int64s) -> tuple[pa.DataType, npt.NDArray[np.generic]]:
    match kind:
        case Kind.INT:
            return pa.int32(), cells.astype(np.int32)
        case Kind.DATE:
            return pa.date32(), cells.astype(np.int32)
        case Kind.LONG:
            return pa.int64(), cells
        case Kind.FLOAT:
            return pa.float32(), cells.astype(np.int32)
        case Kind.DOUBLE:
            return pa.float64(), cells
        case Kind.TIMESTAMP_MICROS:
            return _TIMESTAMP, cells
        case Kind.TIMESTAMP_MILLIS:
            return _TIMESTAMP, cells * 1000
        case Kind.LOCAL_TIMESTAMP_MICROS:
            return _LOCAL_TIMESTAMP, cells
        case Kind.LOCAL_TIMESTAMP_MILLIS:
            return _LOCAL_TIMESTAMP, cells * 1000
        case _:
            raise AssertionError(f"{kind} is not a number")


def _pieces(shape: LeafShape, walked: Walked, length: int, valid: Validity) -> pa.Array:
    starts, lengths = (walked.column(column) for column in shape.columns)
    buffers = [pa.py_buffer(offsets_of(lengths)), walked.pieces(starts, lengths)]
    if shape.leaf.kind is not Kind.STRING:
        return made(pa.binary(), length, valid, buffers)
    try:
        return made(pa.binary(), length, valid, buffers).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise NotText from error
