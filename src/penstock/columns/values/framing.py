"""The header that a schema registry's serialisers put before a value. Avro and Protobuf take it off
while they decode; JSON is decoded by others, so it is done here first."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.columns.values.results import Decoded

# A zero byte and the four bytes of a schema's id.
FRAME_BYTES: Final = 5
TOO_SHORT: Final = "The JSON value is shorter than the five bytes of its header."
NO_ZERO: Final = "The header of the JSON value does not start with a zero byte."


def unframed_json(values: "pa.Array") -> "Decoded":
    """The bytes behind the header, where there is one."""
    # Drivers of Spark import this module too, and they need no Arrow.
    import pyarrow as pa
    import pyarrow.compute as pc

    from penstock.columns.values.results import Decoded

    is_long = pc.greater(pc.binary_length(values), FRAME_BYTES)
    begins = pc.equal(pc.binary_slice(values, 0, 1), b"\0")
    # Not `binary_slice`, which fails for values that are shorter.
    bodies = pc.binary_replace_slice(values, 0, FRAME_BYTES, b"")
    in_header = pc.if_else(begins, pa.scalar(None, pa.string()), pa.scalar(NO_ZERO))
    return Decoded(
        values=pc.if_else(pc.and_(is_long, begins), bodies, pa.scalar(None, values.type)),
        errors=pc.if_else(is_long, in_header, pa.scalar(TOO_SHORT)),
    )
