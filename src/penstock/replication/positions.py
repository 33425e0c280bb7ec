"""Places in a log that have a name, a time or a term."""

from bisect import bisect_right
from enum import IntEnum
from typing import NamedTuple

from penstock.model.file_ranges import FileRange
from penstock.storage.log import Log, LogRange
from penstock.storage.log_ranges import offset_after


class Position(IntEnum):
    """Times that are none: positions of a log by name, numbered as Kafka does."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    # The oldest record that is not in tiered storage, which this broker has none of.
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class FoundOffset(NamedTuple):
    """The answer to a list-offsets query; -1 in every field when there is no such record."""

    offset: int
    timestamp_ms: int
    term: int


def offset_behind(found: FileRange, end: int) -> int:
    """The offset behind records that were read from a log and are all below `end`."""
    assert isinstance(found, LogRange)
    return offset_after(found, end)


NOT_FOUND = FoundOffset(-1, -1, -1)


def term_at(log: Log, offset: int, current: int) -> int:
    """The term of the batch at an offset; the current one where none was written yet."""
    epochs = log.epochs
    index = bisect_right(epochs, offset, key=lambda epoch: epoch[1]) - 1
    return epochs[index][0] if index >= 0 else current


def end_of_term(log: Log, asked: int, current: int, end: int) -> tuple[int, int]:
    """The newest term not after the one asked for, and where it ended for readers up to `end`."""
    if asked > current or asked < 0:
        return -1, -1
    epochs = log.epochs
    if asked == current or not epochs:
        return asked, end
    # A term may pass without a batch; then the one before it lasted until now.
    term, term_end = log.end_offset_for_epoch(min(asked, epochs[-1][0]))
    return term, min(term_end, end)
