"""Which streams a frame reads, in the order in which Spark numbers them in a checkpoint.

A checkpoint holds positions by number alone: if streams changed places, one would go on from where
the other was.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What names the content of a stream, by the option that holds it, with the word for it.
NAMING_OPTIONS = {
    "subscribe": "topic",
    "subscribepattern": "topics like",
    "assign": "partitions",
    "path": "",
}

# How Spark knows a stream of a table; what flows began with this name alone are of any table.
TABLE = "penstock_table"


def are_same_sources(found: Sequence[str], now: Sequence[str]) -> bool:
    """Whether a checkpoint of the ones fits the others."""
    return len(found) == len(now) and all(
        one == other or (one == TABLE and other.startswith("table "))
        for one, other in zip(found, now, strict=True)
    )


def source_signature(frame: "DataFrame") -> tuple[str, ...]:
    """Such as ("topic readings", "csv file:/data/rooms")."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found = (leaves.apply(index) for index in range(leaves.size()))
    return tuple(_description(leaf) for leaf in found if leaf.isStreaming())


def _description(leaf: Any) -> str:
    kind = leaf.getClass().getSimpleName()
    if kind == "StreamingRelationV2":
        # Keys are in lower case here.
        return named(leaf.sourceName(), leaf.extraOptions().asCaseSensitiveMap())
    if kind == "StreamingRelation":
        source = leaf.dataSource()
        options = source.options()
        keys = options.keysIterator()
        given = {}
        while keys.hasNext():
            key = keys.next()
            given[key] = options.apply(key)
        return named(source.className(), given)
    return str(kind)


def named(kind: str, options: Any) -> str:
    """A stream by its kind and its options, as they are given to Spark."""
    given = {str(key).lower(): str(options[key]) for key in options}
    if kind == TABLE:
        from penstock.pipelines.lakes.table_source_stream import DESCRIPTION, TableDescription

        return f"table {TableDescription.from_text(given[DESCRIPTION]).root}"
    for option, word in NAMING_OPTIONS.items():
        if option in given:
            return f"{word or kind} {given[option]}"
    return kind
