"""Arrow batches as Spark would send them to a writer, and a layout that fits them."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.spark.writing.layout import InputLayout

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def arrow_batch(**columns: Sequence[Any]) -> pa.RecordBatch:
    """A batch with the columns named, in the order given."""
    arrays = [pa.array(values, TYPES[name]) for name, values in columns.items()]
    return pa.record_batch(arrays, names=list(columns))


def layout_of(batch: pa.RecordBatch, topic: str | None = "orders") -> InputLayout:
    """The layout in which every column of the batch is written."""
    positions = {name: position for position, name in enumerate(batch.schema.names)}
    return InputLayout(topic_name=topic, **positions)
