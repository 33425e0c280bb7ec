"""A Delta table: each epoch is one commit of its log, with the query's own transaction in it.

`deltalake` refuses a commit if another one brought the same query's transaction meanwhile, so two
processes that run the same batch can't both commit it.

New columns are a commit of their own before that of the first rows that have them, because
`deltalake` can't bring both in one. Anyone who dies in between leaves columns without values, which
the next attempt at the batch finds there.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from penstock.pipelines.lakes import delta_actions, delta_log
from penstock.pipelines.lakes.durable_files import make_folders, remove_tree, replace_file
from penstock.pipelines.lakes.full_disk import full_disk_sentence, is_full_disk
from penstock.pipelines.lakes.lake_table import DataFile, LakeRefused
from penstock.pipelines.lakes.partition_folders import check_partition_columns
from penstock.pipelines.lakes.schema_fit import Fit, fit
from penstock.pipelines.lakes.table_marks import refuse_other_table
from penstock.pipelines.sinks.sink import Epoch

# Somebody else has to be faster each time, after the attempts that `deltalake` makes itself.
ATTEMPTS_MAX = 20
# Opening a table reads the last checkpoint of its log and the commits after it.
_LOG_PROPERTIES = {"delta.checkpointInterval": "100"}
# Which flow a query belonged to outlives the log, whose old commits are cleaned away.
_QUERIES = "_penstock/queries"
# It takes the table feature `typeWidening`, which `deltalake` can neither write nor read.
_NEVER_WIDENS = (
    "the library deltalake can't widen a column's type in a Delta table: cast the column in the"
    " flow, or write to another table"
)


class DeltaTable:
    """A table in a folder; `properties` are given to it when it is made."""

    def __init__(
        self,
        path: str,
        properties: Mapping[str, str] | None = None,
        *,
        evolves: bool = False,
    ) -> None:
        self._root = path
        self._properties = dict(properties or {})
        self._evolves = evolves
        self._handle: deltalake.DeltaTable | None = None
        # The first commit that may not be on the disk; None before this process has looked.
        self._unsynced: int | None = None

    @property
    def root(self) -> str:
        return self._root

    def exists(self) -> bool:
        return self._load() is not None

    def schema(self) -> pa.Schema:
        return pa.schema(self._loaded().schema().to_arrow())

    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._loaded().metadata().partition_columns)

    def check(self, schema: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
        delta_actions.refuse_root(self._root)
        refuse_other_table(self._root, "Delta")
        check_partition_columns(schema, partition_by, self._root)
        delta_actions.refuse_columns(schema, partition_by, self._root)
        table = self._load()
        return schema if table is None else self._fit(table, schema, partition_by).rows

    def last_batch(self, query: str) -> int | None:
        table = self._load()
        return None if table is None else table.transaction_version(query)

    def queries(self, pipeline: str, flow: str) -> frozenset[str]:
        found = set()
        for path in (Path(self._root) / _QUERIES).glob("*.json"):
            note = json.loads(path.read_bytes())
            if (note["pipeline"], note["flow"]) == (pipeline, flow):
                found.add(str(note["query"]))
        # The note comes before the first commit, which may never have come.
        return frozenset(query for query in found if self.last_batch(query) is not None)

    def commit(
        self,
        epoch: Epoch,
        files: Sequence[DataFile],
        schema: pa.Schema,
        partition_by: Sequence[str],
        details: Mapping[str, Any],
    ) -> bool:
        for attempt in range(ATTEMPTS_MAX):
            table = self._load() or self._make(schema, partition_by)
            committed = table.transaction_version(epoch.query)
            if committed is not None and committed >= epoch.batch:
                # A commit that seemed to fail may have come through after all.
                self._sync(table)
                return attempt > 0 and f"{self._root}/{files[0].path}" in self.paths()
            changed = self._fit(table, schema, partition_by).changed
            delta_actions.refuse_files(files, table.schema(), self._root)
            self._note_query(epoch)
            if changed and not self._add_columns(table, changed):
                continue
            if self._append(table, epoch, files, partition_by, details):
                return True
        raise LakeRefused(f"The table {self._root!r} has too many writers at once.")

    def sync(self) -> None:
        table = self._load()
        if table is not None:
            self._sync(table)

    def version(self) -> int:
        table = self._load()
        return -1 if table is None else table.version()

    def paths(self, after: int = -1, until: int | None = None) -> list[str]:
        table = self._loaded()
        delta_actions.refuse_renamed_columns(table.metadata().configuration, self._root)
        last = table.version() if until is None else until
        if after < 0:
            return self._paths_at(last)
        return [
            path
            for version in range(after + 1, last + 1)
            for path in delta_log.added_paths(self._root, version)
        ]

    def drop(self) -> None:
        """From here on there is no such table; its data files are nobody's."""
        self._handle = None
        self._unsynced = None
        remove_tree(Path(self._root) / delta_log.FOLDER)
        remove_tree(Path(self._root) / Path(_QUERIES).parts[0])

    def _paths_at(self, version: int) -> list[str]:
        """All files of a version: what was compacted or deleted since it came is not among them."""
        try:
            table = deltalake.DeltaTable(self._root, version=version)
        except DeltaError as failure:
            raise LakeRefused(
                f"The Delta table {self._root!r} no longer has commit {version} in its log."
            ) from failure
        features = table.protocol().reader_features or ()
        if "deletionVectors" in features and pa.table(table.deletion_vectors()).num_rows:
            raise delta_log.deletion_vectors_refused(self._root)
        added = pa.table(table.get_add_actions()).to_pylist()
        # The names of files go up within a task, so that the order is that of writing.
        added.sort(key=lambda action: (action["modification_time"], action["path"]))
        return [delta_log.file_path(self._root, action["path"]) for action in added]

    def _load(self) -> deltalake.DeltaTable | None:
        """The table as it is now; None if there is none."""
        try:
            if self._handle is None:
                self._handle = deltalake.DeltaTable(self._root)
            else:
                self._handle.update_incremental()
        except TableNotFoundError:
            return None
        except DeltaError as failure:
            raise self._refused(failure) from failure
        return self._handle

    def _loaded(self) -> deltalake.DeltaTable:
        table = self._load()
        if table is None:
            raise LakeRefused(f"There is no Delta table at {self._root!r}.")
        return table

    def _make(self, schema: pa.Schema, partition_by: Sequence[str]) -> deltalake.DeltaTable:
        make_folders(self._root, ".")
        try:
            deltalake.DeltaTable.create(
                self._root,
                deltalake.Schema.from_arrow(schema),
                partition_by=list(partition_by),
                configuration={**_LOG_PROPERTIES, **self._properties},
            )
        except DeltaError as failure:
            # Another flow may have made it meanwhile; then its columns are looked at.
            if self._load() is None:
                raise self._refused(failure) from failure
        # What the table is, is as good as lost without its first commit.
        table = self._loaded()
        self._sync(table)
        return table

    def _sync(self, table: deltalake.DeltaTable) -> None:
        """Also what others have committed: one commit that is lost takes the later ones with it."""
        if self._unsynced is None:
            self._unsynced = delta_log.first_needed(self._root, table.version())
        self._unsynced = delta_log.sync_commits(self._root, self._unsynced)

    def _fit(
        self, table: deltalake.DeltaTable, schema: pa.Schema, partition_by: Sequence[str]
    ) -> Fit:
        metadata = table.metadata()
        delta_actions.refuse_table_to_write(metadata.configuration, self._root)
        return fit(
            pa.schema(table.schema().to_arrow()),
            schema,
            metadata.partition_columns,
            partition_by,
            self._root,
            evolves=self._evolves,
            never_widens=_NEVER_WIDENS,
        )

    def _add_columns(self, table: deltalake.DeltaTable, columns: Sequence[pa.Field]) -> bool:
        """Also fields of columns that are there; False if others committed in between."""
        added = deltalake.Schema.from_arrow(pa.schema(columns))
        try:
            table.alter.add_columns(added.fields)
        except CommitFailedError:
            self._handle = None
            return False
        except DeltaError as failure:
            raise self._refused(failure) from failure
        return True

    def _append(
        self,
        table: deltalake.DeltaTable,
        epoch: Epoch,
        files: Sequence[DataFile],
        partition_by: Sequence[str],
        details: Mapping[str, Any],
    ) -> bool:
        """False if others committed in between in a way that needs a second look."""
        note = {
            "pipeline": epoch.pipeline,
            "flow": epoch.flow,
            "query": epoch.query,
            "batch": epoch.batch,
            "details": json.dumps(details),
        }
        try:
            table.create_write_transaction(
                [delta_actions.add_action(file) for file in files],
                "append",
                table.schema(),
                list(partition_by),
                commit_properties=deltalake.CommitProperties(
                    custom_metadata={"penstock": note},
                    app_transactions=[deltalake.Transaction(epoch.query, epoch.batch)],
                ),
            )
        except CommitFailedError:
            self._handle = None
            return False
        except DeltaError as failure:
            raise self._refused(failure) from failure
        self._sync(table)
        return True

    def _note_query(self, epoch: Epoch) -> None:
        path = Path(self._root) / _QUERIES / f"{epoch.query}.json"
        if path.exists():
            return
        make_folders(self._root, _QUERIES)
        note = {"query": epoch.query, "pipeline": epoch.pipeline, "flow": epoch.flow}
        replace_file(path, json.dumps(note).encode())

    def _refused(self, failure: Exception) -> LakeRefused:
        if is_full_disk(failure):
            return LakeRefused(full_disk_sentence(f"the table {self._root!r}"))
        reason = str(failure).splitlines()[0].rstrip(".") if str(failure) else "no reason given"
        return LakeRefused(f"The Delta table {self._root!r} can't be used: {reason}.")
