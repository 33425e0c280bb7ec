"""Which streams a frame reads, in the order in which Spark numbers them in a checkpoint.

A checkpoint holds positions by number alone: if streams changed places, one would go on from where
the other was.
"""

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


def source_signature(frame: "DataFrame") -> tuple[str, ...]:
    """Such as ("topic readings", "csv file:/data/rooms")."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found = (leaves.apply(index) for index in range(leaves.size()))
    return tuple(_description(leaf) for leaf in found if leaf.isStreaming())


def _description(leaf: Any) -> str:
    kind = leaf.getClass().getSimpleName()
    if kind == "StreamingRelationV2":
        # Keys are in lower case here.
        return _named(leaf.sourceName(), leaf.extraOptions().asCaseSensitiveMap())
    if kind == "StreamingRelation":
        source = leaf.dataSource()
        options = source.options()
        keys = options.keysIterator()
        given = {}
        while keys.hasNext():
            key = keys.next()
            given[key] = options.apply(key)
        return _named(source.className(), given)
    return str(kind)


def _named(kind: str, options: Any) -> str:
    given = {str(key).lower(): str(options[key]) for key in options}
    for option, word in NAMING_OPTIONS.items():
        if option in given:
            return f"{word or kind} {given[option]}"
    return kind
