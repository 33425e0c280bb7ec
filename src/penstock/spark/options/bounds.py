"""Where a query starts and where a batch query ends, as the options say it."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import Enum

from penstock.model.ids import TopicPartition
from penstock.spark.options.errors import OptionError
from penstock.spark.options.given import Given, shown
from penstock.spark.options.partition_json import partition_offsets, partition_timestamps
from penstock.spark.options.selection import Assigned, Selection

# What stands for an offset in JSON when the broker shall say it.
OFFSET_LATEST = -1
OFFSET_EARLIEST = -2

_STRATEGY = "startingOffsetsByTimestampStrategy"
_LISTED_MAX = 10


class Side(Enum):
    """Which end of a query a bound is: they share their forms but not their rules."""

    STARTING = "starting"
    ENDING = "ending"


class NoMatch(Enum):
    """What a start by timestamp becomes where no record is as young as the timestamp."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Earliest:
    pass


@dataclass(frozen=True, slots=True)
class Latest:
    pass


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """One offset for every partition; OFFSET_LATEST and OFFSET_EARLIEST stand for themselves."""

    offsets: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record of each partition that is as young as this, in ms since 1970."""

    timestamp_ms: int
    no_match: NoMatch


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The same, with a timestamp for every partition."""

    timestamps: dict[TopicPartition, int]
    no_match: NoMatch


Bound = Earliest | Latest | AtOffsets | AtTimestamp | AtTimestamps


def read_bound(given: Given, side: Side, default: Bound) -> Bound:
    """The bound that wins: one timestamp, then timestamps by partition, then offsets."""
    no_match = NoMatch(given.one_of(_STRATEGY, ("error", "latest"), NoMatch.ERROR.value))
    timestamp_name = f"{side.value}Timestamp"
    by_timestamp_name = f"{side.value}OffsetsByTimestamp"
    timestamp = given.number(timestamp_name)
    if timestamp is not None:
        return AtTimestamp(timestamp, no_match)
    by_timestamp = given.text(by_timestamp_name)
    if by_timestamp is not None:
        return AtTimestamps(partition_timestamps(by_timestamp_name, by_timestamp), no_match)
    return _read_offsets(given, f"{side.value}Offsets", default)


def _read_offsets(given: Given, name: str, default: Bound) -> Bound:
    text = given.text(name)
    if text is None:
        return default
    match text.lower():
        case "latest":
            return Latest()
        case "earliest":
            return Earliest()
    if not text.startswith("{"):
        raise OptionError(
            f"The option {name} must be earliest, latest or JSON with offsets by partition, "
            f"not {shown(text)}."
        )
    return AtOffsets(partition_offsets(name, text))


def check_batch_start(start: Bound) -> None:
    if isinstance(start, Latest):
        raise OptionError(
            "The option startingOffsets can't be latest in a batch query: there is nothing after"
            " it."
        )
    if isinstance(start, AtOffsets):
        for partition, offset in start.offsets.items():
            if offset == OFFSET_LATEST:
                raise OptionError(
                    f"The option startingOffsets can't be -1 (latest) for {partition} "
                    "in a batch query."
                )


def check_batch_end(end: Bound) -> None:
    if isinstance(end, Earliest):
        raise OptionError(
            "The option endingOffsets can't be earliest in a batch query: there is nothing before"
            " it."
        )
    if isinstance(end, AtOffsets):
        for partition, offset in end.offsets.items():
            if offset == OFFSET_EARLIEST:
                raise OptionError(
                    f"The option endingOffsets can't be -2 (earliest) for {partition} "
                    "in a batch query."
                )


def check_order(start: Bound, end: Bound) -> None:
    """Bounds of the same form must name the same partitions, and none may start after its end."""
    if isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
        _check_pairs("Offsets", start.offsets, end.offsets)
    if isinstance(start, AtTimestamps) and isinstance(end, AtTimestamps):
        _check_pairs("OffsetsByTimestamp", start.timestamps, end.timestamps)


def _check_pairs(
    suffix: str, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> None:
    if starts.keys() != ends.keys():
        raise OptionError(
            f"The options starting{suffix} and ending{suffix} must name the same partitions, "
            f"but only one of them names {partition_list(starts.keys() ^ ends.keys())}."
        )
    for partition, start in starts.items():
        end = ends[partition]
        # The numbers below zero stand for ends of the log, which only the broker knows.
        if start > end >= 0:
            raise OptionError(
                f"The option starting{suffix} says {start} for {partition}, "
                f"which is after {end} in ending{suffix}."
            )


def check_assigned(bound: Bound, selection: Selection, side: Side) -> None:
    """With `assign` the partitions are known, so a bound that names others is refused at once."""
    named = named_partitions(bound)
    if named is None or not isinstance(selection, Assigned):
        return
    assigned = {(t, p) for t, partitions in selection.partitions.items() for p in partitions}
    if named == assigned:
        return
    option = f"{side.value}Offsets" + ("ByTimestamp" if isinstance(bound, AtTimestamps) else "")
    wrong = {TopicPartition(*pair) for pair in named ^ assigned}
    raise OptionError(
        f"The options assign and {option} must name the same partitions, "
        f"but only one of them names {partition_list(wrong)}."
    )


def named_partitions(bound: Bound) -> set[TopicPartition] | None:
    """The partitions that a bound names itself; None when it holds for whichever there are."""
    match bound:
        case AtOffsets(offsets):
            return set(offsets)
        case AtTimestamps(timestamps):
            return set(timestamps)
        case _:
            return None


def partition_list(partitions: Set[TopicPartition]) -> str:
    """Partitions inside a sentence, in order, and only as many as can be read."""
    ordered = sorted(partitions)
    text = ", ".join(str(partition) for partition in ordered[:_LISTED_MAX])
    rest = len(ordered) - _LISTED_MAX
    return f"{text} and {rest} more" if rest > 0 else text
