"""What an operator does about a damaged partition, while its node is stopped.

`check` names all damage. `cut` ends the log before the first damage and puts everything after it
aside, in files that end in `.cut`. What went may have been acknowledged, so the log notes where it
ended: its replica must be filled by others before it votes.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from penstock.model.errors import StorageDamaged
from penstock.model.ids import UNKNOWN_END, LogEnd
from penstock.storage.bad_tail import Place, Reached, is_torn, lost_end
from penstock.storage.checkpoint import NO_DOUBT, Checkpoint, Doubt, read_checkpoint
from penstock.storage.compaction_swap import finish_swap
from penstock.storage.file_system import FileSystem, RealFileSystem
from penstock.storage.layout import (
    CHECKPOINT,
    COMPACTION,
    INDEX_SUFFIX,
    RESET,
    TIME_INDEX_SUFFIX,
    base_offsets,
    segment_path,
)
from penstock.storage.log_reset import finish_reset
from penstock.storage.own_chain import OwnChain, guess_base
from penstock.storage.own_table import OwnEntry, OwnTable
from penstock.storage.put_aside import copy_aside, move_aside
from penstock.storage.segment import SegmentFacts
from penstock.storage.segment_scan import SegmentScan, scan_segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    path: str
    position: int
    detail: str
    # Bytes that a repair has put aside because of this damage.
    lost_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.path} is damaged at byte {self.position}: {self.detail}"


class Inspection:
    """A partition's directory as found: its checkpoint if it is whole, and all its segments."""

    def __init__(self, directory: Path, file_system: FileSystem) -> None:
        self.directory = directory
        self.file_system = file_system
        self.damages: list[Damage] = []
        self.checkpoint = self._read_checkpoint()
        self.scans: list[SegmentScan] = []
        # Files with the names of segments that have no place in the log.
        self.strays: list[Path] = []
        found = self._found() if file_system.is_directory(directory) else []
        self.chain = self._make_chain(found)
        self._scan_all(found)

    def _found(self) -> list[int]:
        found = base_offsets(self.file_system.names(self.directory))
        # What is before the first listed segment was deleted; a start removes it.
        first = min((facts.base_offset for facts in self._listed()), default=0)
        return [base for base in found if base >= first]

    def _make_chain(self, found: list[int]) -> OwnChain:
        checkpoint = self.checkpoint
        if checkpoint is not None:
            return OwnChain(OwnTable(checkpoint.base, checkpoint.own), checkpoint.flushed_index)
        paths = [(base, segment_path(self.directory, base)) for base in found]
        base = guess_base(self.file_system, paths)
        return OwnChain(OwnTable(base), base.index)

    def _read_checkpoint(self) -> Checkpoint | None:
        try:
            if self.file_system.exists(self.directory / RESET):
                finish_reset(self.directory, self.file_system)
            finish_swap(self.directory, self.file_system)
            return read_checkpoint(self.file_system, self.directory)
        except StorageDamaged as damage:
            self._note(damage.path, damage.position, damage.detail)
            return None

    def _note(self, path: Path | str, position: int, detail: str) -> None:
        self.damages.append(Damage(path=str(path), position=position, detail=detail))

    def _scan_all(self, found: list[int]) -> None:
        listed = {facts.base_offset: facts for facts in self._listed()}
        wanted = {base for base, facts in listed.items() if facts.size > 0}
        is_gap = False
        for base in sorted({*found, *wanted}):
            path = segment_path(self.directory, base)
            if base not in found:
                self._note(path, 0, "the segment is missing")
                is_gap = True
                continue
            if self._is_stray(base, path, listed):
                continue
            self._scan(base, path, listed.get(base), is_gap=is_gap, is_last=base == found[-1])
            is_gap = False

    def _listed(self) -> tuple[SegmentFacts, ...]:
        return self.checkpoint.segments if self.checkpoint is not None else ()

    def _is_stray(self, base: int, path: Path, listed: dict[int, SegmentFacts]) -> bool:
        """An empty file is nothing to a start either; another one must fit in somewhere."""
        if base in listed:
            return False
        if self.file_system.size(path) == 0:
            self.strays.append(path)
            return True
        expected = self.scans[-1].facts.next_offset if self.scans else base
        if base >= expected and base > max(listed, default=-1):
            return False
        self._note(
            path, 0, f"offset {expected} should come next, but nothing in the segment starts there"
        )
        self.strays.append(path)
        return True

    def _scan(
        self, base: int, path: Path, facts: SegmentFacts | None, *, is_gap: bool, is_last: bool
    ) -> None:
        # Without its checkpoint nobody knows where compaction has been.
        sparse_below = self.checkpoint.sparse_below if self.checkpoint else 2**63
        scan = scan_segment(
            self.file_system, path, base, sparse_below=sparse_below, chain=self.chain
        )
        expected = self.scans[-1].facts.next_offset if self.scans else base
        if facts is None and base != expected and expected >= sparse_below and not is_gap:
            self._note(
                path, 0, f"offset {expected} should come next, but the segment starts at {base}"
            )
            is_gap = True
        scan.has_gap_before = is_gap
        if facts is not None:
            # The end of a compacted segment may lie behind its last batch.
            end = scan.facts.next_offset if scan.holes else facts.next_offset
            end = max(scan.facts.next_offset, end)
            scan.facts = scan.facts._replace(next_offset=end, created_ms=facts.created_ms)
        self.scans.append(scan)
        self._judge(scan, facts, is_last=is_last)

    def _judge(self, scan: SegmentScan, facts: SegmentFacts | None, *, is_last: bool) -> None:
        mark = facts.size if facts is not None else 0
        # What a start would cut off as never promised is not damage, nor is what follows it.
        is_torn_end = is_last and scan.holes and scan.holes[0].start >= mark and self._is_torn(scan)
        for hole in scan.holes if not is_torn_end else ():
            self._note(scan.path, hole.start, hole.detail)
        if scan.size < mark:
            scan.is_short = True
            detail = f"the segment has {scan.size} bytes instead of {mark}"
            self._note(scan.path, scan.size, detail)

    def _is_torn(self, scan: SegmentScan) -> bool:
        assert scan.facts_before_hole is not None
        file = self.file_system.open(scan.path)
        try:
            place = Place(file, scan.holes[0].start, scan.size)
            return is_torn(place, scan.facts_before_hole.next_offset)
        finally:
            file.close()


def check(directory: Path, file_system: FileSystem | None = None) -> list[Damage]:
    """All damage of a partition, in order; reads every byte of it."""
    return Inspection(directory, file_system or RealFileSystem()).damages


def cut(directory: Path, file_system: FileSystem | None = None) -> list[Damage]:
    """Ends the log before its first damage; returns what was damaged and how much went."""
    inspection = Inspection(directory, file_system or RealFileSystem())
    if not inspection.damages:
        return []
    return _Repair(inspection).cut()


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingTail:
    """What keeps a copy from leading: another one once reached further."""

    directory: Path
    # Where this copy ends, for clients and for Raft.
    end_offset: int
    end: LogEnd
    # Where the log of some voter once ended.
    needed: LogEnd

    @property
    def entries_max(self) -> int | None:
        """How many entries may be missing; None if nobody knows."""
        if self.needed == UNKNOWN_END or self.needed.index <= self.end.index:
            return None
        return self.needed.index - self.end.index

    def __str__(self) -> str:
        count = self.entries_max
        lost = "an unknown number of records"
        if count is not None:
            lost = "one record" if count == 1 else f"up to {count} records"
        return (
            f"{self.directory} ends before offset {self.end_offset} ({self.end}), and the log of "
            f"another voter once ended at {self.needed}: {lost} from offset {self.end_offset} on "
            f"may have been acknowledged and would be given up"
        )


def missing_tail(directory: Path, file_system: FileSystem | None = None) -> MissingTail | None:
    """What all voters together lacked when this one ran last; None if it could go on."""
    checkpoint = read_checkpoint(file_system or RealFileSystem(), directory)
    if checkpoint.doubt.needed <= max(checkpoint.flushed_end, checkpoint.doubt.accepted):
        return None
    return MissingTail(
        directory=directory,
        end_offset=checkpoint.flushed_offset,
        end=checkpoint.flushed_end,
        needed=checkpoint.doubt.needed,
    )


def accept(directory: Path, end: LogEnd, file_system: FileSystem | None = None) -> None:
    """This copy may lead although it lacks what is before `end`, if no other has more of it."""
    disk = file_system or RealFileSystem()
    checkpoint = read_checkpoint(disk, directory)
    doubt = checkpoint.doubt._replace(accepted=end)
    disk.write_atomically(directory / CHECKPOINT, checkpoint._replace(doubt=doubt).encode())


class _Repair:
    def __init__(self, inspection: Inspection) -> None:
        self._found = inspection
        self._directory = inspection.directory
        self._disk = inspection.file_system

    def cut(self) -> list[Damage]:
        kept, rest = self._split()
        lost = sum(scan.size for scan in rest)
        facts = [scan.facts for scan in kept]
        seen = kept[-1].own_seen if kept else frozenset()
        cutting = kept[-1] if kept and kept[-1].holes else None
        if cutting is not None:
            assert cutting.facts_before_hole is not None
            facts[-1] = cutting.facts_before_hole
            seen = cutting.own_seen_before_hole
            start = cutting.holes[0].start
            lost += cutting.size - start
            copy_aside(cutting.path, start, cutting.size, self._disk)
        own = self._found.chain.kept_before(facts[-1].next_offset, seen) if facts else []
        self._write_checkpoint(facts, own, self._doubt(cutting, rest))
        # From the end, so that an interrupted repair leaves no hole and can be repeated.
        for scan in reversed(rest):
            move_aside(scan.path, self._disk)
        if cutting is not None:
            self._truncate(cutting.path, cutting.holes[0].start)
        self._finish()
        return self._report(lost)

    def _split(self) -> tuple[list[SegmentScan], list[SegmentScan]]:
        """The segments up to the first that is bad or comes after a gap, and those behind it."""
        scans = self._found.scans
        for number, scan in enumerate(scans):
            if scan.has_gap_before:
                return scans[:number], scans[number:]
            if scan.holes or scan.is_short:
                return scans[: number + 1], scans[number + 1 :]
        return scans, []

    def _doubt(self, cutting: SegmentScan | None, rest: list[SegmentScan]) -> Doubt:
        """Where the log ended: what the checkpoint knew to be there, or what is behind it."""
        found = self._found
        known = NO_DOUBT if found.checkpoint is None else found.checkpoint.doubt
        table = found.chain.table
        end = found.scans[-1].facts.next_offset if found.scans else table.base.offset
        ends = [known.lost, LogEnd(table.last_term, table.last_index(end))]
        if found.checkpoint is not None:
            ends.append(found.checkpoint.flushed_end)
        if cutting is not None:
            ends.append(self._end_behind(cutting, rest))
        return known._replace(lost=max(ends))

    def _end_behind(self, cutting: SegmentScan, rest: list[SegmentScan]) -> LogEnd:
        assert cutting.facts_before_hole is not None
        offset, table = cutting.facts_before_hole.next_offset, self._found.chain.table
        before = OwnTable(
            table.base, self._found.chain.kept_before(offset, cutting.own_seen_before_hole)
        )
        reached = Reached(offset, before.last_index(offset), before.last_term)
        files = [self._disk.open(scan.path) for scan in (cutting, *rest)]
        try:
            places = [Place(file, 0, file.size()) for file in files]
            places[0] = places[0]._replace(start=cutting.holes[0].start)
            return lost_end(reached, places)
        finally:
            for file in files:
                file.close()

    def _write_checkpoint(
        self, facts: list[SegmentFacts], own: list[OwnEntry], doubt: Doubt
    ) -> None:
        old = self._found.checkpoint
        before = old or Checkpoint(sparse_below=facts[-1].next_offset if facts else 0)
        start = max(before.start_offset, facts[0].base_offset if facts else 0)
        end = facts[-1].next_offset if facts else start
        base_offset = min(start, facts[0].base_offset) if facts else start
        table = self._found.chain.table.moved_to(base_offset)
        keeps_state = before.state_offset <= end
        checkpoint = before._replace(
            start_offset=min(start, end),
            segments=tuple(facts) or (SegmentFacts(end, end),),
            base=table.base,
            own=tuple(entry for entry in own if entry.index > table.base.index),
            cleaned_offset=min(before.cleaned_offset, end),
            state=before.state if keeps_state else b"",
            state_offset=before.state_offset if keeps_state else min(start, end),
            doubt=doubt,
        )
        self._disk.write_atomically(self._directory / CHECKPOINT, checkpoint.encode())

    def _truncate(self, path: Path, size: int) -> None:
        file = self._disk.open(path)
        try:
            file.truncate(size)
            file.sync()
        finally:
            file.close()

    def _finish(self) -> None:
        """Indexes know positions that may be gone; a start rebuilds them."""
        for path in self._found.strays:
            move_aside(path, self._disk)
        # If they were whole, what they decide has been done already.
        for path in (self._directory / COMPACTION, self._directory / RESET):
            if self._disk.exists(path):
                move_aside(path, self._disk)
        for name in self._disk.names(self._directory):
            if name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)):
                self._disk.remove(self._directory / name)
        self._disk.sync_directory(self._directory)

    def _report(self, lost_bytes: int) -> list[Damage]:
        first, *others = self._found.damages
        return [replace(first, lost_bytes=lost_bytes), *others]
