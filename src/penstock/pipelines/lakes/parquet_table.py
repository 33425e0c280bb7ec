"""A table of plain Parquet files, exactly once as read through its manifest.

The manifest also holds the table's columns. Where they change, the entry that brings the first
files of the new kind brings the new columns with it, and older files stay as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.pipelines.lakes.durable_files import remove_tree
from penstock.pipelines.lakes.lake_table import Commit, DataFile, LakeRefused
from penstock.pipelines.lakes.manifest import FOLDER, Entry, Manifest, Query
from penstock.pipelines.lakes.partition_folders import check_partition_columns
from penstock.pipelines.lakes.schema_fit import Fit, fit
from penstock.pipelines.lakes.table_marks import refuse_other_table
from penstock.pipelines.sinks.sink import Epoch

# Somebody else has to be faster each time; more than that is a bug.
ATTEMPTS_MAX = 1000


class ParquetTable:
    """Several queries may append at once: each takes the next number of the manifest."""

    def __init__(self, path: str, *, evolves: bool = False) -> None:
        self._root = path
        self._evolves = evolves
        self._manifest = Manifest(path)

    @property
    def root(self) -> str:
        return self._root

    def exists(self) -> bool:
        return self.version() >= 0

    def schema(self) -> pa.Schema:
        return self._last().schema

    def partition_by(self) -> tuple[str, ...]:
        return self._last().partition_by

    def check(self, schema: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
        refuse_other_table(self._root, "Parquet")
        check_partition_columns(schema, partition_by, self._root)
        last = self._manifest.last()
        return schema if last is None else self._fit(last, schema, partition_by).rows

    def last_batch(self, query: str) -> int | None:
        last = self._manifest.last()
        return None if last is None else _last_batch(last, query)

    def queries(self, pipeline: str, flow: str) -> frozenset[str]:
        last = self._manifest.last()
        if last is None:
            return frozenset()
        return frozenset(
            query
            for query, known in last.queries.items()
            if (known.pipeline, known.flow) == (pipeline, flow)
        )

    def commit(
        self,
        epoch: Epoch,
        files: Sequence[DataFile],
        schema: pa.Schema,
        partition_by: Sequence[str],
        details: Mapping[str, Any],
    ) -> bool:
        for _ in range(ATTEMPTS_MAX):
            last = self._manifest.last()
            columns = schema
            if last is not None:
                committed = _last_batch(last, epoch.query)
                if committed is not None and committed >= epoch.batch:
                    self.sync()
                    return False
                columns = self._fit(last, schema, partition_by).table
            entry = _next(last, epoch, files, columns, partition_by, details)
            # A shared folder may say that a name is taken by what this very call has made.
            if self._manifest.append(entry) or self._manifest.entry(
                entry.commit.version
            ).commit.files == tuple(files):
                return True
        raise LakeRefused(f"The table {self._root!r} has too many writers at once.")

    def sync(self) -> None:
        self._manifest.sync()

    def version(self) -> int:
        return self._manifest.last_version()

    def commits(self, after: int = -1, until: int | None = None) -> Iterator[Commit]:
        """In (after, until], in their order."""
        last = self.version() if until is None else until
        return self._manifest.commits(after, last)

    def paths(self, after: int = -1, until: int | None = None) -> list[str]:
        last = self.version() if until is None else until
        return [f"{self._root}/{path}" for path in self._manifest.paths(after, last)]

    def drop(self) -> None:
        """From here on there is no such table; its data files are nobody's."""
        remove_tree(Path(self._root) / FOLDER)

    def _last(self) -> Entry:
        last = self._manifest.last()
        if last is None:
            raise LakeRefused(f"There is no table at {self._root!r}.")
        return last

    def _fit(self, last: Entry, schema: pa.Schema, partition_by: Sequence[str]) -> Fit:
        return fit(
            last.schema,
            schema,
            last.partition_by,
            partition_by,
            self._root,
            evolves=self._evolves,
        )


def _last_batch(entry: Entry, query: str) -> int | None:
    known = entry.queries.get(query)
    return None if known is None else known.last_batch


def _next(
    last: Entry | None,
    epoch: Epoch,
    files: Sequence[DataFile],
    schema: pa.Schema,
    partition_by: Sequence[str],
    details: Mapping[str, Any],
) -> Entry:
    version = 0 if last is None else last.commit.version + 1
    queries = {} if last is None else dict(last.queries)
    queries[epoch.query] = Query(pipeline=epoch.pipeline, flow=epoch.flow, last_batch=epoch.batch)
    commit = Commit(version=version, epoch=epoch, files=tuple(files), details=details)
    return Entry(commit=commit, schema=schema, partition_by=tuple(partition_by), queries=queries)
