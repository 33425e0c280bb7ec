"""The names of all options, and what happens to a name that is none of them.

A misspelt option that was passed over in silence would leave its default in force and nobody
would know, so it is refused. What Spark itself hands to every source passes.
"""

from collections.abc import Iterable

from penstock.spark.options.errors import OptionError
from penstock.spark.options.given import Given
from penstock.spark.options.java_names import JAVA_NAMES

READ_OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
    "columns",
    "commitGroup",
    "maxBrokerOutage",
    "firstContactTimeout",
    "tracing",
)
WRITE_OPTIONS = (
    "topic",
    "includeHeaders",
    "includeTimestamp",
    "maxBrokerOutage",
    "firstContactTimeout",
    "tracing",
)

# What Spark adds by itself, and what its catalogues and all of its file sources take: jobs keep
# such options in one place for every source they read.
_SPARK_NAMES = frozenset(
    {
        "path",
        "paths",
        "checkpointlocation",
        "queryname",
        "outputmode",
        "schema",
        "mergeschema",
        "inferschema",
        "timezone",
        "ignorecorruptfiles",
        "ignoremissingfiles",
        "ignoreinvalidpartitionvalues",
        "pathglobfilter",
        "recursivefilelookup",
        "modifiedbefore",
        "modifiedafter",
        "datetimerebasemode",
        "int96rebasemode",
        "provider",
        "location",
        "owner",
        "comment",
        "external",
        "is_managed_location",
        "collation",
        "transient_lastddltime",
        "serialization.format",
    }
)
# Two underscores before a name are how Spark marks what it passes to itself.
_SPARK_PREFIXES = ("spark.", "option.", "_")
_SIMILARITY_MIN = 0.7


def check_names(given: Given) -> None:
    """Refuses the first name that nobody knows; settings named `kafka.*` are checked elsewhere."""
    known = {name.lower() for name in (*READ_OPTIONS, *WRITE_OPTIONS)}
    for name in sorted(given.values):
        if name in known or name in _SPARK_NAMES or name.startswith(("kafka.", *_SPARK_PREFIXES)):
            continue
        raise OptionError(f"There is no option {name}{nearest_hint(_nearest_option(name))}.")


def _nearest_option(name: str) -> str | None:
    if name in JAVA_NAMES:
        return f"kafka.{name}"
    java = (f"kafka.{java_name}" for java_name in JAVA_NAMES)
    return nearest(name, (*READ_OPTIONS, *WRITE_OPTIONS, *java))


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that `name` was probably meant to be, as the documents spell it."""
    # Imported here because only a wrong name needs it.
    import difflib

    spelling = {candidate.lower(): candidate for candidate in names}
    # Sorted, so that of two equally near names always the same one is proposed.
    close = difflib.get_close_matches(name.lower(), sorted(spelling), 1, _SIMILARITY_MIN)
    return spelling[close[0]] if close else None


def nearest_hint(close: str | None) -> str:
    """The end of a sentence about an unknown name, before its full stop."""
    return f"; the nearest is {close}" if close else ""
