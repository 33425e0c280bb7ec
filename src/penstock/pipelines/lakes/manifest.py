"""The manifest of a Parquet table: numbered files, each an epoch with its data files.

Each number is made once, by whoever comes first, with all that it says or not at all. It also
repeats what is to be known of the whole table, so that the last one answers most questions.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.pipelines.lakes.durable_files import create_exclusively, make_folders, replace_file
from penstock.pipelines.lakes.lake_table import Commit, LakeRefused
from penstock.pipelines.lakes.receipts import from_json, to_json
from penstock.pipelines.sinks.sink import Epoch

FOLDER = "_manifest"
FORMAT = 1
_HINT = "latest"
_DIGITS = 20


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

    def last(self) -> Entry | None:
        version = self.last_version()
        return None if version < 0 else self.entry(version)

    def last_version(self) -> int:
        """From the hint on, numbers follow each other without a gap."""
        version = self._hint()
        if version is None:
            version = max(self._numbers(), default=-1)
        while self._path(version + 1).exists():
            version += 1
        return version

    def entry(self, version: int) -> Entry:
        path = self._path(version)
        try:
            return _entry_of(json.loads(path.read_bytes()))
        except FileNotFoundError as missing:
            raise LakeRefused(
                f"The table {self._root!r} has no commit {version} in its manifest."
            ) from missing
        except (ValueError, KeyError, TypeError) as damaged:
            raise LakeRefused(f"The manifest {str(path)!r} can't be read: {damaged}.") from damaged

    def entries(self, after: int, until: int) -> Iterator[Entry]:
        for version in range(after + 1, until + 1):
            yield self.entry(version)

    def append(self, entry: Entry) -> bool:
        """Make the entry the table's next; False if somebody else took its number."""
        make_folders(self._root, FOLDER)
        version = entry.commit.version
        content = json.dumps(_entry_to_json(entry), indent=1).encode()
        if not create_exclusively(self._path(version), content):
            return False
        replace_file(self._folder / _HINT, str(version).encode())
        return True

    def _path(self, version: int) -> Path:
        return self._folder / f"{version:0{_DIGITS}d}.json"

    def _hint(self) -> int | None:
        """It may be old, or lost with a power cut: it only says where to begin to look."""
        try:
            version = int((self._folder / _HINT).read_text())
        except (FileNotFoundError, ValueError):
            return None
        return version if self._path(version).exists() else None

    def _numbers(self) -> Iterator[int]:
        for path in self._folder.glob("[0-9]*.json"):
            if path.stem.isdigit():
                yield int(path.stem)


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


def _entry_of(value: Mapping[str, Any]) -> Entry:
    if value["format"] != FORMAT:
        raise ValueError(f"its format is {value['format']}, and this Penstock knows {FORMAT}")
    return Entry(
        commit=Commit(
            version=value["version"],
            epoch=Epoch(**value["epoch"]),
            files=tuple(from_json(file) for file in value["files"]),
            details=value["details"],
        ),
        schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["arrow_schema"]))),
        partition_by=tuple(value["partition_by"]),
        queries={query: Query(**known) for query, known in value["queries"].items()},
    )
