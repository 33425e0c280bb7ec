"""Follows Raft's own entries through the files of a log that nobody trusts yet."""

from collections.abc import Collection, Sequence
from pathlib import Path

from penstock.records.batch import BatchHeader, CorruptBatch
from penstock.storage.batch_reader import BadBatch, read_batches
from penstock.storage.file_system import FileSystem
from penstock.storage.own_table import LogBase, OwnEntry, OwnTable, read_own


class OwnChain:
    """What the checkpoint knows of own entries, and what is found in the files behind it."""

    def __init__(self, table: OwnTable, known_index: int) -> None:
        self.table = table
        # The checkpoint knows all own entries up to here.
        self._known_index = known_index
        # Indices of those that were met in the files.
        self.seen: set[int] = set()

    def fault(self, header: BatchHeader, batch: memoryview) -> str:
        """What is wrong with the next batch, as far as terms and indices go; empty if nothing."""
        if header.is_own:
            return self._own_fault(header, batch)
        term = self.table.term_of(header.base_offset)
        if header.leader_epoch != term:
            return f"the batch is from term {header.leader_epoch}, but the log is in {term}"
        return ""

    def _own_fault(self, header: BatchHeader, batch: memoryview) -> str:
        try:
            entry = read_own(batch, header)
        except CorruptBatch as error:
            return str(error)
        if entry.index <= self._known_index:
            if self.table.at(entry.index) != entry:
                return f"Raft's own entry with index {entry.index} is not what was written"
        else:
            detail = self.table.misfit(entry)
            if detail:
                return detail
            self.table = self.table.plus(entry)
        self.seen.add(entry.index)
        return ""

    def kept_before(self, end: int, seen: Collection[int]) -> list[OwnEntry]:
        """The own entries of a log that is cut at offset `end`, where only `seen` were met."""
        return [
            entry
            for entry in self.table.entries
            if entry.offset < end or (entry.offset == end and entry.index in seen)
        ]


def guess_base(file_system: FileSystem, segments: Sequence[tuple[int, Path]]) -> LogBase:
    """What is before a log whose checkpoint is lost, as far as its files tell.

    The first own entry tells its index, and so that of everything before it. Without one, the log
    is taken for one that never had any.
    """
    offset = segments[0][0] if segments else 0
    first_term: int | None = None
    for _, path in segments:
        for header, own in _readable(file_system, path):
            term = header.leader_epoch
            if own is None:
                first_term = term if first_term is None else first_term
                continue
            index = own.index - 1 - (own.offset - offset)
            return LogBase(offset, max(0, index), term - 1 if first_term is None else first_term)
    return LogBase(offset, offset, first_term or 0)


def _readable(file_system: FileSystem, path: Path) -> list[tuple[BatchHeader, OwnEntry | None]]:
    """The first batch of a file, and its first own entry: all that `guess_base` looks at."""
    found: list[tuple[BatchHeader, OwnEntry | None]] = []
    file = file_system.open(path)
    try:
        for _, header, batch in read_batches(file, 0, file_system.size(path)):
            if header.is_own:
                return [*found, (header, read_own(batch, header))]
            if not found:
                found.append((header, None))
    except (BadBatch, CorruptBatch):
        # What is behind is for the scan to judge.
        return found
    finally:
        file.close()
    return found
