"""Bounds turned into offsets: what to ask a broker for, and what follows from its answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.model.ids import TopicPartition
from penstock.spark.options.bounds import (
    OFFSET_EARLIEST,
    OFFSET_LATEST,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Bound,
    Earliest,
    Latest,
    NoMatch,
    Side,
    named_partitions,
    partition_list,
)
from penstock.spark.planning.errors import PlanError
from penstock.spark.planning.ranges import OffsetRange

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What a broker must be asked before a bound can be resolved."""

    earliest: frozenset[TopicPartition] = frozenset()
    latest: frozenset[TopicPartition] = frozenset()
    at_timestamp: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What it said. The latest are best asked for last, so that nothing is after them."""

    earliest: Offsets = field(default_factory=dict)
    latest: Offsets = field(default_factory=dict)
    # None where no record is as young as the timestamp.
    at_timestamp: Mapping[TopicPartition, int | None] = field(default_factory=dict)


def questions(bound: Bound, partitions: Iterable[TopicPartition], side: Side) -> Questions:
    """What `resolve` will look up; raises PlanError if the bound names other partitions."""
    wanted = frozenset(partitions)
    _check_named(bound, wanted, side)
    match bound:
        case Earliest():
            return Questions(earliest=wanted)
        case Latest():
            return Questions(latest=wanted)
        case AtOffsets(offsets):
            return Questions(
                earliest=frozenset(p for p in wanted if offsets[p] == OFFSET_EARLIEST),
                latest=frozenset(p for p in wanted if offsets[p] == OFFSET_LATEST),
            )
        case AtTimestamp(timestamp, no_match):
            times = dict.fromkeys(wanted, timestamp)
        case AtTimestamps(timestamps, no_match):
            times = {partition: timestamps[partition] for partition in wanted}
    may_be_latest = side is Side.ENDING or no_match is NoMatch.LATEST
    return Questions(at_timestamp=times, latest=wanted if may_be_latest else frozenset())


def resolve(
    bound: Bound, partitions: Iterable[TopicPartition], side: Side, answers: Answers
) -> dict[TopicPartition, int]:
    """One offset for every partition; raises PlanError where there is none to be had."""
    wanted = sorted(partitions)
    _check_named(bound, frozenset(wanted), side)
    return {partition: _offset(bound, partition, side, answers) for partition in wanted}


def _offset(bound: Bound, partition: TopicPartition, side: Side, answers: Answers) -> int:
    match bound:
        case Earliest():
            return answers.earliest[partition]
        case Latest():
            return answers.latest[partition]
        case AtOffsets(offsets):
            return _named_offset(offsets[partition], partition, answers)
        case AtTimestamp(timestamp, no_match):
            return _offset_at(timestamp, no_match, partition, side, answers)
        case AtTimestamps(timestamps, no_match):
            return _offset_at(timestamps[partition], no_match, partition, side, answers)


def _named_offset(offset: int, partition: TopicPartition, answers: Answers) -> int:
    if offset == OFFSET_EARLIEST:
        return answers.earliest[partition]
    if offset == OFFSET_LATEST:
        return answers.latest[partition]
    return offset


def _offset_at(
    timestamp: int, no_match: NoMatch, partition: TopicPartition, side: Side, answers: Answers
) -> int:
    found = answers.at_timestamp[partition]
    if found is not None:
        return found
    if side is Side.STARTING and no_match is NoMatch.ERROR:
        raise PlanError(
            f"No record of {partition} has a timestamp of {timestamp} or later to start at; "
            "the option startingOffsetsByTimestampStrategy=latest would start at its end."
        )
    return answers.latest[partition]


def _check_named(bound: Bound, partitions: frozenset[TopicPartition], side: Side) -> None:
    named = named_partitions(bound)
    if named is None or named == partitions:
        return
    by_timestamp = isinstance(bound, AtTimestamps)
    option = f"{side.value}Offsets{'ByTimestamp' if by_timestamp else ''}"
    hint = "" if by_timestamp else ", with -1 for the latest offset or -2 for the earliest"
    missing, unknown = partitions - named, named - partitions
    wrong = [f"leaves out {partition_list(missing)}"] if missing else []
    wrong += [f"also names {partition_list(unknown)}"] if unknown else []
    raise PlanError(
        f"The option {option} must name exactly the partitions that are read{hint}; "
        f"it {' and '.join(wrong)}."
    )


def batch_ranges(
    starting: Bound,
    ending: Bound,
    starts: Offsets,
    ends: Offsets,
) -> list[OffsetRange]:
    """What a batch query reads, without the partitions that have nothing between their bounds.

    A start behind the end is refused when the user named it, since some of what was wanted can't
    be there. Where an end of the log stands for a bound it only means that nothing is left.
    """
    ranges = []
    for partition in sorted(starts.keys() & ends.keys()):
        start, end = starts[partition], ends[partition]
        if start > end and _is_contradiction(starting, ending, partition):
            raise PlanError(
                f"The query would start at offset {start} of {partition}, "
                f"which is after its end at offset {end}."
            )
        if start < end:
            ranges.append(OffsetRange(partition=partition, start=start, stop=end))
    return ranges


def _is_contradiction(starting: Bound, ending: Bound, partition: TopicPartition) -> bool:
    if not _is_fixed(starting, partition):
        return False
    return isinstance(starting, AtOffsets) or _is_fixed(ending, partition)


def _is_fixed(bound: Bound, partition: TopicPartition) -> bool:
    """Whether the user named a place in the log and not one of its ends."""
    match bound:
        case AtOffsets(offsets):
            return offsets[partition] >= 0
        case AtTimestamp() | AtTimestamps():
            return True
        case _:
            return False
