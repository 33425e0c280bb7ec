"""Proves that an archive is complete, or says what of it is missing, altered or there twice."""

from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from penstock.pipelines.archives.chain import check_lost, check_numbers, check_spans, covered
from penstock.pipelines.archives.description import Description, archive_at, checkpoint_of
from penstock.pipelines.archives.file_checks import Offsets, check_file
from penstock.pipelines.archives.ledger import ArchivedFile, Entry, Ledger, Span
from penstock.pipelines.lakes.lake_table import LakeTable
from penstock.pipelines.lakes.opening import open_table
from penstock.pipelines.running.checkpoint_folder import last_committed, query_id

# Checksums are made outside of the interpreter's lock.
WORKERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an archive holds, and what is wrong with it, a sentence each."""

    description: Description
    epochs: int
    files: int
    rows: int
    size: int
    spans: tuple[Span, ...]
    findings: tuple[str, ...]


class Verification:
    """Knows at once how much there is to look at; `run` does it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.description = archive_at(root)
        self._ledger = Ledger(root)
        # In this order, because an archive may grow meanwhile: what Spark has noted, and all but
        # the last epoch of the ledger, is in the table, and what the table holds is in the ledger.
        self._last = max(self._ledger.numbers(), default=0)
        checkpoint = checkpoint_of(root)
        self._noted = query_id(checkpoint), last_committed(checkpoint)
        table = open_table(self.description.format, str(root), self.description.options)
        self._in_table = _relative_paths(table)
        self._damaged: list[str] = []
        self._numbers = self._ledger.numbers()
        self.entries = list(self._ledger.entries(self._numbers, self._damaged.append))
        while self.entries and self._is_unfinished(self.entries[-1]):
            self._numbers.remove(self.entries.pop().number)

    @property
    def size(self) -> int:
        return sum(file.size for entry in self.entries for file in entry.files)

    def run(self, advance: Callable[[int], None] = lambda size: None) -> Verdict:
        """`advance` is called with how many bytes were looked at since the last call."""
        findings = [
            *self._damaged,
            *check_numbers(self._numbers),
            *check_spans(self.entries),
            *check_lost(self.entries),
            *check_table(self.entries, self._in_table),
            *self._check_files(advance),
        ]
        files = [file for entry in self.entries for file in entry.files]
        return Verdict(
            description=self.description,
            epochs=len(self.entries),
            files=len(files),
            rows=sum(file.rows for file in files),
            size=self.size,
            spans=covered(self.entries),
            findings=tuple(findings),
        )

    def _is_unfinished(self, entry: Entry) -> bool:
        """The last epoch may be one that is being written, or whose process was killed."""
        if entry.number < self._last or not entry.files:
            return False
        if not self._in_table.isdisjoint(file.path for file in entry.files):
            return False
        query, batch = self._noted
        return query != entry.query or batch is None or batch < entry.batch

    def _check_files(self, advance: Callable[[int], None]) -> Iterator[str]:
        with ThreadPoolExecutor(WORKERS) as pool:
            for entry in self.entries:
                results = pool.map(lambda file: check_file(self._root, file), entry.files)
                found: list[tuple[ArchivedFile, Offsets]] = []
                for file, result in zip(entry.files, results, strict=True):
                    advance(file.size)
                    if isinstance(result, str):
                        yield result
                    else:
                        found.append((file, result))
                yield from check_offsets(entry, found)


def check_table(entries: Sequence[Entry], in_table: Set[str]) -> Iterator[str]:
    """The table holds the files of the ledger and no others."""
    for entry in entries:
        paths = [file.path for file in entry.files]
        missing = [path for path in paths if path not in in_table]
        if missing and missing == paths:
            yield f"Epoch {entry.number} is not in the table."
            continue
        for path in missing:
            yield f"The file {path} is no longer part of the table."
    in_ledger = {file.path for entry in entries for file in entry.files}
    for path in sorted(in_table - in_ledger):
        yield f"The file {path} is part of the table, but not of the ledger."


def _relative_paths(table: LakeTable) -> frozenset[str]:
    if not table.exists():
        return frozenset()
    prefix = f"{table.root.rstrip('/')}/"
    return frozenset(path.removeprefix(prefix) for path in table.paths())


def check_offsets(entry: Entry, found: Sequence[tuple[ArchivedFile, Offsets]]) -> Iterator[str]:
    """Each offset is in one file of its epoch alone, and belongs to what the epoch has read."""
    spans = {span.partition: span for span in entry.spans}
    ordered = sorted(found, key=lambda one: one[0].partition)
    for partition, group in groupby(ordered, key=lambda one: one[0].partition):
        offsets = np.sort(np.concatenate([each for _, each in group]))
        span = spans.get(partition)
        if np.any(np.diff(offsets) == 0):
            yield f"Partition {partition}: epoch {entry.number} holds offsets twice."
        if span is None or (
            len(offsets) and not span.start <= offsets[0] <= offsets[-1] < span.stop
        ):
            yield f"Partition {partition}: epoch {entry.number} holds offsets that it has not read."
