"""The same columns as Arrow types, exactly as Spark makes them of its own schema."""

from collections.abc import Sequence

import pyarrow as pa

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(pa.field("element", HEADER_TYPE))
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")

_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP_TYPE,
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of these columns, in this order: Spark refuses batches of any other."""
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])
