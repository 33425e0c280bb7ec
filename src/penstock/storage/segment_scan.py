"""Reads a whole segment and trusts nothing but its bytes: what is good, and where it ends."""

from dataclasses import dataclass, field
from pathlib import Path

from penstock.records.batch import BatchHeader
from penstock.storage.batch_reader import BadBatch, read_batches
from penstock.storage.batch_search import find_valid_batch
from penstock.storage.continuity import misfit
from penstock.storage.epochs import EpochHistory
from penstock.storage.file_system import File, FileSystem
from penstock.storage.segment import SegmentFacts


@dataclass(slots=True)
class Hole:
    """Bytes that are no valid batches: from `start` to the next valid one, or to the file's end."""

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
    epochs: list[tuple[int, int]] = field(default_factory=list)
    # The facts before the first hole, which is where a cut would end the segment.
    facts_before_hole: SegmentFacts | None = None
    # What the inspection of its neighbours and its checkpoint adds.
    has_gap_before: bool = False
    is_short: bool = False


def scan_segment(
    file_system: FileSystem, path: Path, base_offset: int, *, sparse_below: int
) -> SegmentScan:
    """All good batches of the segment; flat in memory, however large it is."""
    size = file_system.size(path)
    scan = SegmentScan(path, size, SegmentFacts(base_offset, base_offset))
    file = file_system.open(path)
    try:
        position = 0
        while position < size:
            position = _scan_run(scan, file, position, sparse_below)
            # Behind a hole, offsets are missing by nature.
            sparse_below = max(sparse_below, scan.facts.next_offset + 1)
    finally:
        file.close()
    return scan


def _scan_run(scan: SegmentScan, file: File, position: int, sparse_below: int) -> int:
    """Takes good batches up to the next hole; returns where the good ones begin again."""
    try:
        for at, header, _ in read_batches(file, position, scan.size):
            detail = misfit(header, scan.facts.next_offset, sparse_below)
            if detail:
                raise BadBatch(at, detail)
            _take(scan, header)
        return scan.size
    except BadBatch as bad:
        if scan.facts_before_hole is None:
            scan.facts_before_hole = scan.facts
        valid = find_valid_batch(file, bad.position + 1, scan.size, scan.facts.next_offset)
        end = scan.size if valid is None else valid
        scan.holes.append(Hole(bad.position, end, bad.detail, is_inside=valid is not None))
        return end


def _take(scan: SegmentScan, header: BatchHeader) -> None:
    facts = scan.facts
    is_latest = header.record_count > 0 and header.max_timestamp > facts.max_timestamp
    scan.facts = facts._replace(
        next_offset=header.next_offset,
        size=facts.size + header.size,
        max_timestamp=header.max_timestamp if is_latest else facts.max_timestamp,
        max_timestamp_offset=header.base_offset if is_latest else facts.max_timestamp_offset,
        first_timestamp=header.max_timestamp if facts.size == 0 else facts.first_timestamp,
    )
    epochs = EpochHistory(scan.epochs)
    epochs.note(header.leader_epoch, header.base_offset)
    scan.epochs = list(epochs.entries)
