"""A table in Iceberg's format: data files and the epoch they came with, in one transaction.

A query's last batch is a property of the table, `penstock.epoch.<query>`, which outlives snapshots.
Two writers of one epoch can't both win: the loser of the race looks at the property again before
another attempt. What a commit was about is kept in its snapshot's properties.

Where the columns of the table have to change, they do so in the transaction of the first files that
need it.
"""

import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.pipelines.lakes.durable_files import make_folders, remove_tree, sync_path
from penstock.pipelines.lakes.full_disk import (
    full_disk_sentence,
    is_full_disk,
    is_own_disk_full,
)
from penstock.pipelines.lakes.iceberg_catalogs import CatalogPlace, catalog_place, open_catalog
from penstock.pipelines.lakes.lake_table import DataFile, LakeRefused
from penstock.pipelines.lakes.schema_fit import Fit, fit
from penstock.pipelines.lakes.table_marks import refuse_other_table
from penstock.pipelines.sinks.sink import Epoch

if TYPE_CHECKING:
    import pyarrow as pa

EPOCH_PREFIX = "penstock.epoch."
QUERY_PREFIX = "penstock.query."
FIRST_FILE = "penstock.first-file"
ATTEMPTS_MAX = 20
_PAUSE_S_MAX = 1.0
# Parquet leaves bounds of longer values out, and Iceberg takes a file's partition from its bounds.
_PARTITION_BYTES_MAX = 4000


class IcebergTable:
    """`options` as in `iceberg_catalogs.py`; nothing is read or made before it is needed."""

    def __init__(
        self,
        path: str,
        options: Mapping[str, str] | None = None,
        *,
        evolves: bool = False,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._place: CatalogPlace = catalog_place(os.path.abspath(path), options or {})
        self._evolves = evolves
        self._pause = pause
        self._opened: Any = None

    @property
    def root(self) -> str:
        return self._place.root

    def exists(self) -> bool:
        return self._load() is not None

    def schema(self) -> "pa.Schema":
        from penstock.pipelines.lakes.iceberg_schemas import arrow_schema

        return arrow_schema(self._loaded().schema())

    def check(self, schema: "pa.Schema", partition_by: Sequence[str]) -> "pa.Schema":
        """A table that is not there yet has to be possible."""
        from penstock.pipelines.lakes import iceberg_schemas as schemas

        table = self._load()
        if table is not None:
            return self._fit(table, schema, partition_by).rows
        schemas.partition_fields(schema, partition_by, self.root)
        schemas.iceberg_schema(schema, self.root)
        refuse_other_table(self.root, "Iceberg")
        return schema

    def last_batch(self, query: str) -> int | None:
        table = self._load()
        return None if table is None else _last_batch(table, query)

    def queries(self, pipeline: str, flow: str) -> frozenset[str]:
        table = self._load()
        if table is None:
            return frozenset()
        owner = _owner(pipeline, flow)
        return frozenset(
            name.removeprefix(QUERY_PREFIX)
            for name, value in table.properties.items()
            if name.startswith(QUERY_PREFIX) and value == owner
        )

    def commit(
        self,
        epoch: Epoch,
        files: Sequence[DataFile],
        schema: "pa.Schema",
        partition_by: Sequence[str],
        details: Mapping[str, Any],
    ) -> bool:
        """Nothing is committed for an epoch without files."""
        if not files:
            return True
        _check_bounds(files, self.root)
        self._make(schema, partition_by)
        for attempt in range(ATTEMPTS_MAX):
            table = self._loaded()
            if _holds(table, epoch):
                self.sync()
                # An attempt that seemed to fail may have come through after all.
                return _has_added(table, epoch, files)
            changed = self._fit(table, schema, partition_by).changed
            if self._append(table, epoch, files, changed, details):
                return True
            self._pause(random.uniform(0.1, 1.0) * min(_PAUSE_S_MAX, 0.02 * 2**attempt))
        raise LakeRefused(
            f"Other writers changed the Iceberg table {self.root!r} during each of"
            f" {ATTEMPTS_MAX} attempts to add rows."
        )

    def sync(self) -> None:
        """SQLite takes a commit back if the journal reappears that it has just removed."""
        if self._place.properties is None and os.path.exists(self._place.own_file):
            sync_path(self._place.own_file)
            make_folders(self.root, ".")
            sync_path(self.root)

    def version(self) -> int:
        from penstock.pipelines.lakes.iceberg_history import version_of

        table = self._load()
        return -1 if table is None else version_of(table)

    def paths(self, after: int = -1, until: int | None = None) -> list[str]:
        from penstock.pipelines.lakes.iceberg_history import added_paths

        table = self._load()
        try:
            return [] if table is None else added_paths(table, after, until, self.root)
        except LakeRefused:
            raise
        except Exception as failure:
            raise self._unreadable(failure) from failure

    def drop(self) -> None:
        """Take the table out of its catalog, and its metadata out of its folder."""
        if self._load() is None:
            return
        self._catalog().drop_table(self._place.identifier)
        self._close()
        remove_tree(Path(self.root) / "metadata")
        if self._place.properties is None:
            os.unlink(self._place.own_file)

    def _fit(self, table: Any, schema: "pa.Schema", partition_by: Sequence[str]) -> Fit:
        """Compared in the types that Iceberg has; files may have others that mean the same."""
        from penstock.pipelines.lakes import iceberg_schemas as schemas

        fields = schemas.partition_fields(schema, partition_by, self.root)
        found = fit(
            schemas.arrow_schema(table.schema()),
            schemas.arrow_schema(schemas.iceberg_schema(schema, self.root)),
            schemas.partition_by_of(table),
            [str(field) for field in fields],
            self.root,
            evolves=self._evolves,
        )
        if not self._evolves:
            return replace(found, rows=schema)
        schemas.iceberg_schema(found.table, self.root)
        schemas.refuse_required(table.schema(), schema, found.changed, self.root)
        return found

    def _append(
        self,
        table: Any,
        epoch: Epoch,
        files: Sequence[DataFile],
        changed: Sequence["pa.Field"],
        details: Mapping[str, Any],
    ) -> bool:
        """One attempt; False if another commit came in between, so that it has to be tried again.

        Whatever else goes wrong may do so after the catalog took the commit, and then all is well.
        """
        from pyiceberg.exceptions import CommitFailedException
        from sqlalchemy.exc import OperationalError

        try:
            self._transact(_without_retries(table), epoch, files, changed, details)
        except Exception as failure:
            # SQLite has one kind of error for a file that is locked and for a disk that is full.
            is_full = is_full_disk(failure)
            if isinstance(failure, CommitFailedException | OperationalError) and not is_full:
                return False
            if _has_added(self._loaded(), epoch, files):
                return True
            if isinstance(failure, OverflowError):
                # pyiceberg holds the bounds of each column as Python's dates.
                raise LakeRefused(
                    f"The Iceberg table {self.root!r} does not take a date or time outside of the"
                    " years 1 to 9999, which the rows hold."
                ) from failure
            if is_own_disk_full(failure):
                # A catalog elsewhere that speaks of its own disk might still take the commit.
                _remove_made(table)
            raise
        return True

    def _transact(
        self,
        table: Any,
        epoch: Epoch,
        files: Sequence[DataFile],
        changed: Sequence["pa.Field"],
        details: Mapping[str, Any],
    ) -> None:
        from penstock.pipelines.lakes.iceberg_history import (
            forget_old_snapshots,
            remove_metadata_of,
        )
        from penstock.pipelines.lakes.iceberg_schemas import change_columns

        transaction = table.transaction()
        if changed:
            change_columns(transaction, changed, self.root)
        transaction.set_properties(
            {
                f"{EPOCH_PREFIX}{epoch.query}": str(epoch.batch),
                f"{QUERY_PREFIX}{epoch.query}": _owner(epoch.pipeline, epoch.flow),
            }
        )
        transaction.add_files(
            [f"{self.root}/{file.path}" for file in files],
            snapshot_properties=_snapshot_properties(epoch, files, details),
            # Names are never used twice, and to check it would read every manifest.
            check_duplicate_files=False,
        )
        forgotten = forget_old_snapshots(transaction)
        transaction.commit_transaction()
        remove_metadata_of(forgotten, table)

    def _make(self, schema: "pa.Schema", partition_by: Sequence[str]) -> None:
        from pyiceberg.exceptions import TableAlreadyExistsError

        from penstock.pipelines.lakes import iceberg_schemas as schemas

        if self._load() is not None:
            return
        fields = schemas.partition_fields(schema, partition_by, self.root)
        columns = schemas.iceberg_schema(schema, self.root)
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(self._place.namespace)
        try:
            catalog.create_table(
                self._place.identifier,
                columns,
                location=self.root,
                partition_spec=schemas.partition_specification(columns, fields),
                properties=_table_properties(self._place),
            )
        except TableAlreadyExistsError:
            # Another flow made it in this very moment; whether it fits is checked next.
            return

    def _load(self) -> Any:
        """The table as it is now; None if there is none."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        if not self._place.may_exist:
            return None
        try:
            return self._catalog().load_table(self._place.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except FileNotFoundError as failure:
            raise LakeRefused(
                f"The metadata of the Iceberg table {self.root!r} is gone, though its catalog names"
                " it: reset the flow with its tables, or restore the folder."
            ) from failure
        except LakeRefused:
            raise
        except Exception as failure:
            raise self._unreadable(failure) from failure

    def _unreadable(self, failure: Exception) -> LakeRefused:
        """Metadata that was cut off or altered fails in many ways inside of pyiceberg."""
        if is_full_disk(failure):
            return LakeRefused(full_disk_sentence(f"the table {self.root!r}"))
        reason = next(iter(str(failure).splitlines()), "").rstrip(".:")
        said = f"{type(failure).__name__}: {reason}" if reason else type(failure).__name__
        return LakeRefused(f"The Iceberg table {self.root!r} can't be read: {said}.")

    def _loaded(self) -> Any:
        table = self._load()
        if table is None:
            raise LakeRefused(f"There is no Iceberg table at {self.root!r}.")
        return table

    def _catalog(self) -> Any:
        if self._opened is None:
            self._opened = open_catalog(self._place)
        return self._opened

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _remove_made(table: Any) -> None:
    """Only our own way to write files knows which they were."""
    from penstock.pipelines.lakes.iceberg_files import DurableFileIO

    if isinstance(table.io, DurableFileIO):
        table.io.remove_made()


def _without_retries(table: Any) -> Any:
    """pyiceberg would try again by itself, without a look at the epoch: two drivers could add it.

    The setting is changed in this copy alone and never reaches the table.
    """
    from pyiceberg.table import TableProperties

    none = {TableProperties.COMMIT_NUM_RETRIES: "0"}
    properties = {**table.metadata.properties, **none}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def _table_properties(place: CatalogPlace) -> dict[str, str]:
    """What keeps a table quick that gets a commit every few seconds."""
    from penstock.pipelines.lakes.iceberg_history import SNAPSHOTS_KEPT

    return {
        SNAPSHOTS_KEPT: str(place.snapshots_kept),
        "format-version": "2",
        "commit.manifest-merge.enabled": "true",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "10",
    }


def _snapshot_properties(
    epoch: Epoch, files: Sequence[DataFile], details: Mapping[str, Any]
) -> dict[str, str]:
    return {
        FIRST_FILE: files[0].path,
        "penstock.pipeline": epoch.pipeline,
        "penstock.flow": epoch.flow,
        "penstock.query": epoch.query,
        "penstock.batch": str(epoch.batch),
        "penstock.details": json.dumps(details, sort_keys=True),
    }


def _owner(pipeline: str, flow: str) -> str:
    return json.dumps([pipeline, flow])


def _last_batch(table: Any, query: str) -> int | None:
    text = table.properties.get(f"{EPOCH_PREFIX}{query}")
    return None if text is None else int(text)


def _holds(table: Any, epoch: Epoch) -> bool:
    last = _last_batch(table, epoch.query)
    return last is not None and last >= epoch.batch


def _has_added(table: Any, epoch: Epoch, files: Sequence[DataFile]) -> bool:
    """Whether it is these files that came with the epoch, and not those of another attempt."""
    return _holds(table, epoch) and any(
        snapshot.summary is not None and snapshot.summary.get(FIRST_FILE) == files[0].path
        for snapshot in table.snapshots()
    )


def _check_bounds(files: Sequence[DataFile], root: str) -> None:
    for file in files:
        for column, value in file.partition.items():
            if value is not None and len(value.encode()) > _PARTITION_BYTES_MAX:
                raise LakeRefused(
                    f"The column {column!r} can't cut the Iceberg table {root!r} into partitions:"
                    f" a value in it is longer than {_PARTITION_BYTES_MAX} bytes."
                )
