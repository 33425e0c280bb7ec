"""What an operator does about a damaged partition, while its node is stopped.

`check` names all damage. `cut` ends the log before the first damage and puts everything after it
aside; `excise` takes out only what is bad and leaves a gap in the offsets. Both keep the bytes
that they take out, in files that end in `.cut`, and leave a log that opens. What went may have been
acknowledged, so the log is marked: its replica must be filled by others before it votes.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from penstock.model.errors import StorageDamaged
from penstock.storage.checkpoint import Checkpoint, read_checkpoint
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
from penstock.storage.segment import SegmentFacts
from penstock.storage.segment_scan import Hole, SegmentScan, scan_segment

CUT_SUFFIX = ".cut"

_COPY_BYTES = 4 * 1024 * 1024


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
        # What lies before the first listed segment was deleted; a start removes it.
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
        self._note(path, 0, f"the segment has no place where offset {expected} comes next")
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
            self._note(path, 0, f"offset {expected} should come next, the segment begins at {base}")
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
        for hole in scan.holes:
            is_torn_end = is_last and not hole.is_inside and hole.start >= mark
            if not is_torn_end:
                self._note(scan.path, hole.start, hole.detail)
        if scan.size < mark:
            scan.is_short = True
            detail = f"the segment has {scan.size} bytes instead of {mark}"
            self._note(scan.path, scan.size, detail)


def check(directory: Path, file_system: FileSystem | None = None) -> list[Damage]:
    """All damage of a partition, in order; reads every byte of it."""
    return Inspection(directory, file_system or RealFileSystem()).damages


def cut(directory: Path, file_system: FileSystem | None = None) -> list[Damage]:
    """Ends the log before its first damage; returns what was damaged and how much went."""
    inspection = Inspection(directory, file_system or RealFileSystem())
    if not inspection.damages:
        return []
    return _Repair(inspection).cut()


def excise(directory: Path, file_system: FileSystem | None = None) -> list[Damage]:
    """Takes the damaged bytes alone out of the log; returns what was damaged and how much went."""
    inspection = Inspection(directory, file_system or RealFileSystem())
    if not inspection.damages:
        return []
    return _Repair(inspection).excise()


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
            self._copy_aside(cutting.path, start, cutting.size)
        own = self._found.chain.kept_before(facts[-1].next_offset, seen) if facts else []
        self._write_checkpoint(facts, own, sparse_below=0)
        # From the end, so that an interrupted repair leaves no hole and can be repeated.
        for scan in reversed(rest):
            self._disk.rename(scan.path, self._aside(scan.path))
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

    def excise(self) -> list[Damage]:
        lost = 0
        for scan in self._found.scans:
            for hole in scan.holes:
                lost += hole.end - hole.start
                self._copy_aside(scan.path, hole.start, hole.end)
            if scan.holes:
                self._rewrite(scan.path, scan.holes, scan.size)
        scans = self._found.scans
        end = scans[-1].facts.next_offset if scans else 0
        own = self._found.chain.kept_up_to(end)
        self._write_checkpoint([scan.facts for scan in scans], own, sparse_below=end)
        self._finish()
        return self._report(lost)

    def _write_checkpoint(
        self, facts: list[SegmentFacts], own: list[OwnEntry], *, sparse_below: int
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
            sparse_below=max(before.sparse_below, sparse_below),
            state=before.state if keeps_state else b"",
            state_offset=before.state_offset if keeps_state else min(start, end),
            has_lost=True,
        )
        self._disk.write_atomically(self._directory / CHECKPOINT, checkpoint.encode())

    def _aside(self, path: Path) -> Path:
        """A free name beside the file."""
        names = set(self._disk.names(path.parent))
        name, number = path.name + CUT_SUFFIX, 1
        while name in names:
            number += 1
            name = f"{path.name}.{number}{CUT_SUFFIX}"
        return path.with_name(name)

    def _copy_aside(self, path: Path, start: int, end: int) -> None:
        if start < end:
            self._copy(path, self._aside(path), [(start, end)])

    def _copy(self, path: Path, target: Path, ranges: list[tuple[int, int]]) -> None:
        source, out = self._disk.open(path), self._disk.create(target)
        try:
            written = 0
            for start, end in ranges:
                for position in range(start, end, _COPY_BYTES):
                    data = source.pread(min(_COPY_BYTES, end - position), position)
                    out.pwrite(data, written)
                    written += len(data)
            out.sync()
        finally:
            source.close()
            out.close()
        self._disk.sync_directory(path.parent)

    def _rewrite(self, path: Path, holes: list[Hole], size: int) -> None:
        """The segment without its holes."""
        edges = [0, *(edge for hole in holes for edge in (hole.start, hole.end)), size]
        ranges = list(zip(edges[::2], edges[1::2], strict=True))
        temporary = path.with_name(path.name + ".tmp")
        self._copy(path, temporary, ranges)
        self._disk.rename(temporary, path)

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
            self._disk.rename(path, self._aside(path))
        # If they were whole, what they decide has been done already.
        for path in (self._directory / COMPACTION, self._directory / RESET):
            if self._disk.exists(path):
                self._disk.rename(path, self._aside(path))
        for name in self._disk.names(self._directory):
            if name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)):
                self._disk.remove(self._directory / name)
        self._disk.sync_directory(self._directory)

    def _report(self, lost_bytes: int) -> list[Damage]:
        first, *others = self._found.damages
        return [replace(first, lost_bytes=lost_bytes), *others]
