"""The columns of a topic as Spark sees them: those of Spark's own Kafka source, in its order.

This module is imported where a query is planned, so it needs neither numpy nor pyarrow.
"""

from collections.abc import Sequence

COLUMNS = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)

# Spark reads these by the settings of the session, which can make a keyword of a name and a type
# without time zone of TIMESTAMP; names in backticks and the full name mean the same everywhere.
_TYPES = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP_LTZ",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<`key`: STRING, `value`: BINARY>>",
}

assert tuple(_TYPES) == COLUMNS


def spark_schema(columns: Sequence[str]) -> str:
    """The schema of these columns, in this order, as Spark's data definition language has it."""
    return ", ".join(f"`{name}` {_TYPES[name]}" for name in columns)
