"""Raft's own entries, and gaps, in the shape of record batches, so that a segment holds only those.

An own entry takes an index of the Raft log but no offset: its base offset is the one that the next
client's record gets, and its last offset is the one before. After the header come its kind, its
index, its term once more (in the header no checksum covers it), and what the kind needs. Equal
entries are equal byte for byte on every replica.

A gap stands for offsets whose records compaction removed: a batch without records.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from penstock.records.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    MAGIC,
    OWN_OFFSET_DELTA,
    BatchHeader,
    CorruptBatch,
    parse_header,
    seal,
)

# What fits into the last offset delta of one batch.
GAP_SPAN_MAX = 2**31 - 1

_CONTENT = struct.Struct(">BQq")


class OwnKind(IntEnum):
    # A leader's first entry: all terms begin with one.
    NEW_TERM = 1
    # The payload is the whole new membership, encoded.
    MEMBERSHIP = 2
    # The payload is the offset at which the log begins from now on.
    LOG_START = 3


class OwnContent(NamedTuple):
    kind: OwnKind
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    payload: bytes


def build_own(
    kind: OwnKind | int, *, index: int, term: int, offset: int, payload: bytes = b""
) -> bytes:
    header = _empty(offset, OWN_OFFSET_DELTA, term, CONTROL_BIT)
    return seal(header, _CONTENT.pack(kind, index, term) + payload)


def parse_own(
    batch: bytes | bytearray | memoryview, header: BatchHeader | None = None
) -> OwnContent:
    """What an own entry says; raises CorruptBatch if the batch is none. Checks no CRC."""
    header = header or parse_header(batch)
    if not header.is_own:
        raise CorruptBatch("the batch is not Raft's own entry")
    content = bytes(memoryview(batch)[HEADER_SIZE : header.size])
    try:
        kind, index, term = _CONTENT.unpack_from(content)
        found = OwnContent(OwnKind(kind), index, content[_CONTENT.size :])
    except (struct.error, ValueError) as error:
        raise CorruptBatch(f"Raft's own entry makes no sense: {error}") from None
    if term != header.leader_epoch:
        raise CorruptBatch(f"Raft's own entry is of term {term}, not {header.leader_epoch}")
    return found


def peek_own(batch: bytes) -> tuple[int, int]:
    """Index and term as the content says, whatever the header says; CorruptBatch if it is short."""
    try:
        _, index, term = _CONTENT.unpack_from(batch, HEADER_SIZE)
    except struct.error:
        raise CorruptBatch("Raft's own entry has no content") from None
    return index, term


def build_gap(*, offset: int, span: int, term: int) -> bytes:
    assert 0 < span <= GAP_SPAN_MAX
    return seal(_empty(offset, span - 1, term, 0), b"")


def build_gaps(*, offset: int, span: int, term: int) -> list[bytes]:
    """As many batches as a gap of any span takes."""
    return [
        build_gap(offset=begin, span=min(GAP_SPAN_MAX, offset + span - begin), term=term)
        for begin in range(offset, offset + span, GAP_SPAN_MAX)
    ]


def _empty(offset: int, last_offset_delta: int, term: int, attributes: int) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=0,
        leader_epoch=term,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=-1,
        max_timestamp=-1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
