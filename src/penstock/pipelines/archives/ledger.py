"""Which offsets each epoch of an archive holds, in which files: one small file for each epoch.

An entry is written before the table commits the epoch. It counts once the table holds the epoch, or
at once if the epoch brought no records, because then there is nothing that a table could hold.
Entries are numbered from 0 on without a gap, whatever query wrote them: one that is not committed
can only be the last one, and the next epoch takes its number. Old ones are folded together, see
`lakes/numbered_files.py`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from penstock.pipelines.archives.description import FOLDER
from penstock.pipelines.archives.json_files import json_text
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.lakes.numbered_files import FileDamaged, NumberedFiles
from penstock.pipelines.sinks.sink import Epoch

EPOCHS = "epochs"

# Whether a table holds an epoch of a query: the greatest batch that it has of it.
LastBatch = Callable[[str], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Offsets of one partition, from `start` up to but without `stop`."""

    partition: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A data file of one partition, whose offsets ascend from `first` to `last`."""

    path: str
    """Relative to the archive, with slashes."""
    partition: int
    first: int
    last: int
    rows: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One epoch."""

    number: int
    query: str
    batch: int
    partitions: int
    """How many the topic had."""
    spans: tuple[Span, ...]
    """What was read, one for each partition that had something new, by partition."""
    files: tuple[ArchivedFile, ...]
    lost: tuple[Span, ...] = ()
    """What the topic had deleted before it could be read, as far as going on was asked for."""
    ends: Mapping[int, int]
    """By partition: the first offset that neither this epoch nor an earlier one has read."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def offsets(self) -> int:
        return sum(span.stop - span.start for span in self.spans)

    def is_of(self, epoch: Epoch) -> bool:
        return (self.query, self.batch) == (epoch.query, epoch.batch)

    def is_committed(self, last_batch: LastBatch) -> bool:
        if not self.files:
            return True
        last = last_batch(self.query)
        return last is not None and last >= self.batch

    def to_json(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "batch": self.batch,
            "partitions": self.partitions,
            "spans": [_span_json(span) for span in self.spans],
            "lost": [_span_json(span) for span in self.lost],
            "files": [{name: getattr(file, name) for name in _FILE_FIELDS} for file in self.files],
            "ends": {str(partition): end for partition, end in sorted(self.ends.items())},
        }


_FILE_FIELDS = ("path", "partition", "first", "last", "rows", "size", "sha256")


def _span_json(span: Span) -> list[int]:
    return [span.partition, span.start, span.stop]


def _spans(given: Sequence[Sequence[int]]) -> tuple[Span, ...]:
    return tuple(Span(partition=one, start=start, stop=stop) for one, start, stop in given)


class Ledger:
    """The entries below an archive's folder; one process at a time may write them."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER / EPOCHS
        self._files = NumberedFiles(self._folder)

    def path(self, number: int) -> Path:
        """Of an epoch that is not folded together with others."""
        return self._files.path(number)

    def numbers(self) -> list[int]:
        return self._files.numbers()

    def entry(self, number: int) -> Entry:
        try:
            return self._entry(number, self._files.read(number))
        except FileDamaged as damage:
            raise _refused(damage) from None

    def entries(
        self,
        numbers: Sequence[int] | None = None,
        damaged: Callable[[str], None] | None = None,
    ) -> Iterator[Entry]:
        """All of them, committed or not, in their order; `damaged` is told of what can't be read,
        which raises otherwise.
        """
        found = self.numbers() if numbers is None else numbers

        def tell(damage: FileDamaged) -> None:
            if damaged is None:
                raise _refused(damage) from None
            damaged(str(_refused(damage)))

        for number, content in self._files.read_all(found, tell):
            try:
                entry = self._entry(number, content)
            except FileDamaged as damage:
                tell(damage)
            else:
                yield entry

    def last_committed(self, last_batch: LastBatch) -> Entry | None:
        """Only the very last entry can be one that is not committed."""
        numbers = self.numbers()[-2:]
        for number in reversed(numbers):
            entry = self.entry(number)
            if entry.is_committed(last_batch):
                return entry
        if len(numbers) > 1:
            raise self._not_in_table(numbers[0])
        return None

    def committed(self, last_batch: LastBatch) -> Iterator[Entry]:
        """All but the last one must be; what comes after the call is left out."""
        numbers = self.numbers()
        known = cache(last_batch)
        for entry in self.entries(numbers):
            if entry.is_committed(known):
                yield entry
            elif entry.number < numbers[-1]:
                raise self._not_in_table(entry.number)

    def _not_in_table(self, number: int) -> ArchiveRefused:
        return ArchiveRefused(
            f"Epoch {number} of the archive {self._folder.parent.parent} is in its ledger, but not"
            " in its table: restore the table's own files."
        )

    def write(self, entry: Entry) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._files.put(entry.number, json_text(entry.to_json()))

    def fold_behind(self, entry: Entry) -> None:
        """After an entry is committed, as all before it are."""
        self._files.fold_behind(entry.number)

    def _entry(self, number: int, content: Mapping[str, Any]) -> Entry:
        try:
            return Entry(
                number=number,
                query=str(content["query"]),
                batch=int(content["batch"]),
                partitions=int(content["partitions"]),
                spans=_spans(content["spans"]),
                lost=_spans(content["lost"]),
                files=tuple(ArchivedFile(**file) for file in content["files"]),
                ends={int(one): int(end) for one, end in content["ends"].items()},
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            alone = range(number, number + 1)
            raise FileDamaged(
                self._files.place(number), "it does not describe an epoch", alone
            ) from None


def _refused(damage: FileDamaged) -> ArchiveRefused:
    return ArchiveRefused(f"The file {damage.path} is damaged: {damage.reason}.")
