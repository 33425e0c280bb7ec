"""The manifest of a Parquet table: numbered files, each an epoch with its data files.

Each number is made once, by the first to come, with all that it says or not at all. It also
repeats what is to be known of the whole table, so that the last one answers most questions. Old
ones are folded together, see `numbered_files.py`.
"""

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.pipelines.lakes.durable_files import make_folders, replace_file, sync_path
from penstock.pipelines.lakes.lake_table import Commit, LakeRefused
from penstock.pipelines.lakes.numbered_files import FileDamaged, NumberedFiles
from penstock.pipelines.lakes.receipts import from_json, to_json
from penstock.pipelines.sinks.sink import Epoch

FOLDER = "_manifest"
FORMAT = 1
_HINT = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query that has committed to the table."""

    pipeline: str
    flow: str
    last_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One numbered file."""

    commit: Commit
    schema: pa.Schema
    partition_by: tuple[str, ...]
    queries: Mapping[str, Query] = field(default_factory=dict)
    """All that have ever committed, by id, this one included."""


class Manifest:
    """The numbered files of one table."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._folder = Path(root) / FOLDER
        self._files = NumberedFiles(self._folder)

    def last(self) -> Entry | None:
        version = self.last_version()
        return None if version < 0 else self.entry(version)

    def last_version(self) -> int:
        """From the hint on, numbers follow each other without a gap."""
        return self._files.last(self._hint())

    def entry(self, version: int) -> Entry:
        with self._explained():
            return _entry_of(self._shaped(version, self._files.read(version)))

    def commits(self, after: int, until: int) -> Iterator[Commit]:
        """In (after, until], without what each repeats of the whole table."""
        with self._explained():
            for version, content in self._files.read_all(range(after + 1, until + 1)):
                yield _commit_of(self._shaped(version, content))

    def paths(self, after: int, until: int) -> Iterator[str]:
        """Of the files that commits in (after, until] added, relative to the table's root."""
        with self._explained():
            for version, content in self._files.read_all(range(after + 1, until + 1)):
                for file in self._shaped(version, content)["files"]:
                    yield file["path"]

    def append(self, entry: Entry) -> bool:
        """Make the entry the table's next; False if somebody else took its number."""
        make_folders(self._root, FOLDER)
        version = entry.commit.version
        content = json.dumps(_entry_to_json(entry), indent=1).encode()
        if not self._files.create(version, content):
            return False
        # The entry counts from here on, whatever becomes of what only makes it quick to find.
        with contextlib.suppress(OSError):
            replace_file(self._folder / _HINT, str(version).encode())
        self._files.fold_behind(version)
        return True

    def sync(self) -> None:
        """What a file says is on the disk before it gets its name: only names can be missing."""
        if self._folder.exists():
            make_folders(self._root, FOLDER)
            sync_path(self._folder)

    def _hint(self) -> int | None:
        """It may be old, or lost with a power cut: it only says where to begin to look."""
        try:
            version = int((self._folder / _HINT).read_text())
        except (FileNotFoundError, ValueError):
            return None
        return version if self._files.holds(version) else None

    def _shaped(self, version: int, content: dict[str, Any]) -> dict[str, Any]:
        """What is of another version of Penstock, or of no version, is damaged for this one."""
        alone = range(version, version + 1)
        if content.get("format") != FORMAT:
            reason = f"its format is {content.get('format')}, but this Penstock knows {FORMAT}"
            raise FileDamaged(self._files.place(version), reason, alone)
        if missing := _FIELDS - content.keys():
            reason = f"it lacks {', '.join(sorted(missing))}"
            raise FileDamaged(self._files.place(version), reason, alone)
        return content

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as missing:
            raise LakeRefused(
                f"The manifest of the table {self._root!r} is not complete: {missing}."
            ) from missing
        except FileDamaged as damaged:
            raise LakeRefused(
                f"The manifest {str(damaged.path)!r} can't be read: {damaged.reason}."
            ) from damaged


_FIELDS = frozenset(
    {"version", "epoch", "details", "files", "queries", "partition_by", "arrow_schema"}
)


def _entry_to_json(entry: Entry) -> dict[str, Any]:
    commit = entry.commit
    return {
        "format": FORMAT,
        "version": commit.version,
        "epoch": asdict(commit.epoch),
        "details": dict(commit.details),
        "files": [to_json(file) for file in commit.files],
        "queries": {query: asdict(known) for query, known in entry.queries.items()},
        "partition_by": list(entry.partition_by),
        "columns": {column.name: str(column.type) for column in entry.schema},
        # The same columns, exactly.
        "arrow_schema": base64.b64encode(entry.schema.serialize().to_pybytes()).decode(),
    }


def _commit_of(value: Mapping[str, Any]) -> Commit:
    return Commit(
        version=value["version"],
        epoch=Epoch(**value["epoch"]),
        files=tuple(from_json(file) for file in value["files"]),
        details=value["details"],
    )


def _entry_of(value: Mapping[str, Any]) -> Entry:
    return Entry(
        commit=_commit_of(value),
        schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["arrow_schema"]))),
        partition_by=tuple(value["partition_by"]),
        queries={query: Query(**known) for query, known in value["queries"].items()},
    )
