"""Arrow arrays with children, made from parts that are already arrays."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Validity = npt.NDArray[np.bool_] | None
Lengths = npt.NDArray[np.int64]


def made(
    kind: pa.DataType,
    length: int,
    valid: Validity,
    buffers: list[pa.Buffer],
    children: list[pa.Array] | None = None,
) -> pa.Array:
    """An array from its buffers; where `valid` is false there is no value."""
    bitmap = None
    if valid is not None and not valid.all():
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, length, [bitmap, *buffers], children=children)


def struct_array(
    names: tuple[str, ...], fields: list[pa.Array], length: int, valid: Validity
) -> pa.Array:
    named = zip(names, fields, strict=True)
    kind = pa.struct([pa.field(name, field.type) for name, field in named])
    return made(kind, length, valid, [], fields)


def list_array(items: pa.Array, counts: Lengths, valid: Validity) -> pa.Array:
    """The field's name is the one that Spark gives the items of an array."""
    kind = pa.list_(pa.field("element", items.type))
    return made(kind, len(counts), valid, [pa.py_buffer(offsets_of(counts))], [items])


def map_array(keys: pa.Array, values: pa.Array, counts: Lengths, valid: Validity) -> pa.Array:
    kind = pa.map_(keys.type, pa.field("value", values.type))
    entries = pa.struct([kind.key_field, kind.item_field])
    pairs = made(entries, len(keys), None, [], [keys, values])
    return made(kind, len(counts), valid, [pa.py_buffer(offsets_of(counts))], [pairs])


def offsets_of(lengths: Lengths) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
