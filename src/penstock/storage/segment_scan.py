"""Reads a whole segment and trusts nothing but its bytes: what is good, and where it ends."""

from dataclasses import dataclass, field
from pathlib import Path

from penstock.records.batch import BatchHeader
from penstock.storage.batch_reader import BadBatch, read_batches
from penstock.storage.batch_search import find_valid_batch
from penstock.storage.continuity import misfit
from penstock.storage.file_system import File, FileSystem
from penstock.storage.own_chain import OwnChain
from penstock.storage.segment import SegmentFacts


@dataclass(slots=True)
class Hole:
    """Bytes that are not valid batches: from `start` to the next valid one, or to the end."""

    start: int
    end: int
    detail: str
    # Whether a valid batch follows.
    is_inside: bool


@dataclass(slots=True)
class SegmentScan:
    path: Path
    size: int
    # Of the good batches, positions as if the holes were not there.
    facts: SegmentFacts
    holes: list[Hole] = field(default_factory=list)
    # Raft's own entries that were met up to its end, in all segments.
    own_seen: frozenset[int] = frozenset()
    # The same before the first hole, which is where a cut would end the segment.
    facts_before_hole: SegmentFacts | None = None
    own_seen_before_hole: frozenset[int] = frozenset()
    # What the inspection of its neighbours and its checkpoint adds.
    has_gap_before: bool = False
    is_short: bool = False


def scan_segment(
    file_system: FileSystem, path: Path, base_offset: int, *, sparse_below: int, chain: OwnChain
) -> SegmentScan:
    """All good batches of the segment; flat in memory, however large it is."""
    size = file_system.size(path)
    scan = SegmentScan(path, size, SegmentFacts(base_offset, base_offset))
    file = file_system.open(path)
    try:
        position = 0
        while position < size:
            position = _scan_run(scan, file, position, sparse_below, chain)
            # Behind a hole, offsets are missing by nature.
            sparse_below = max(sparse_below, scan.facts.next_offset + 1)
    finally:
        file.close()
    scan.own_seen = frozenset(chain.seen)
    return scan


def _scan_run(
    scan: SegmentScan, file: File, position: int, sparse_below: int, chain: OwnChain
) -> int:
    """Takes good batches up to the next hole; returns where the good ones begin again."""
    try:
        for at, header, batch in read_batches(file, position, scan.size):
            detail = misfit(header, scan.facts.next_offset, sparse_below)
            detail = detail or chain.fault(header, batch)
            if detail:
                raise BadBatch(at, detail)
            _take(scan, header)
        return scan.size
    except BadBatch as bad:
        if scan.facts_before_hole is None:
            scan.facts_before_hole = scan.facts
            scan.own_seen_before_hole = frozenset(chain.seen)
        valid = find_valid_batch(file, bad.position + 1, scan.size, scan.facts.next_offset)
        end = scan.size if valid is None else valid
        _add_hole(scan, Hole(bad.position, end, bad.detail, is_inside=valid is not None))
        return end


def _add_hole(scan: SegmentScan, hole: Hole) -> None:
    """Batches that fit nowhere come one by one, and are one hole."""
    if scan.holes and scan.holes[-1].end == hole.start:
        scan.holes[-1].end = hole.end
    else:
        scan.holes.append(hole)


def _take(scan: SegmentScan, header: BatchHeader) -> None:
    facts = scan.facts
    is_latest = header.record_count > 0 and header.max_timestamp > facts.max_timestamp
    has_time = facts.first_timestamp >= 0
    first_timestamp = facts.first_timestamp if has_time else header.max_timestamp
    scan.facts = facts._replace(
        next_offset=header.next_offset,
        size=facts.size + header.size,
        max_timestamp=header.max_timestamp if is_latest else facts.max_timestamp,
        max_timestamp_offset=header.base_offset if is_latest else facts.max_timestamp_offset,
        first_timestamp=first_timestamp,
    )
