"""Rows to a table of files: executors write them, one commit on the driver makes them count."""

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipelines.lakes.arrow_schemas import arrow_schema
from penstock.pipelines.lakes.durable_files import remove_tree
from penstock.pipelines.lakes.executor_writing import write_frame
from penstock.pipelines.lakes.full_disk import full_disk_explained, is_own_disk_full
from penstock.pipelines.lakes.lake_table import DataFile, LakeRefused, LakeTable
from penstock.pipelines.lakes.partition_folders import check_partition_columns
from penstock.pipelines.sinks.sink import Epoch, SinkRefused, Written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

DATA = "data"


def _go_on(step: str) -> None:
    """What happens between two steps of a batch, where no test wants to interfere."""


class LakeWriter:
    """A sink that appends each micro-batch to a table, exactly once.

    Files of an attempt at a batch have a folder of their own, so that a batch that is done again
    never touches what is committed. `steps` is called with "written" and "committed".
    """

    def __init__(
        self,
        table: LakeTable,
        partition_by: Sequence[str] = (),
        *,
        keeps_partition_columns: bool = True,
        steps: Callable[[str], None] = _go_on,
    ) -> None:
        self._table = table
        self._partition_by = tuple(partition_by)
        self._keeps_partition_columns = keeps_partition_columns
        self._steps = steps

    def prepare(self, schema: "StructType") -> None:
        with self._explained():
            self._fitted(schema)

    def write(self, frame: "DataFrame", epoch: Epoch) -> Written:
        try:
            if not self._holds(epoch):
                return self._write(frame, epoch)
            # Spark's checkpoint, which is next, must not outlive the commit.
            self._table.sync()
            self._remove_failed_attempts(epoch)
            return Written(rows=0, was_there=True)
        except LakeRefused as refused:
            raise SinkRefused(str(refused)) from refused

    def queries_before(self, pipeline: str, flow: str) -> frozenset[str]:
        return self._table.queries(pipeline, flow)

    def clear(self) -> None:
        self._table.drop()
        remove_tree(Path(self._table.root) / DATA)

    def _fitted(self, schema: "StructType") -> "pa.Schema":
        """How the table's files hold such rows."""
        arrow = arrow_schema(schema)
        check_partition_columns(arrow, self._partition_by, self._table.root)
        return self._table.check(arrow, self._partition_by)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What the driver does to the table; tasks name a full disk themselves."""
        try:
            with full_disk_explained(f"the table {self._table.root!r}", LakeRefused):
                yield
        except LakeRefused as refused:
            raise SinkRefused(str(refused)) from refused

    def _holds(self, epoch: Epoch) -> bool:
        last = self._table.last_batch(epoch.query)
        return last is not None and last >= epoch.batch

    def _write(self, frame: "DataFrame", epoch: Epoch) -> Written:
        # A table that changed since the start is found out before rows are written, not after.
        schema = self._fitted(frame.schema)
        folder = f"{DATA}/{epoch.query}/{epoch.batch}-{uuid.uuid4().hex[:12]}"
        with self._given_up(epoch, folder, is_commit=False):
            files = write_frame(
                frame,
                schema,
                self._table.root,
                folder,
                self._partition_by,
                keeps_partition_columns=self._keeps_partition_columns,
            )
        self._check_presence(files)
        self._steps("written")
        if files:
            with self._explained(), self._given_up(epoch, folder, is_commit=True):
                is_ours = self._table.commit(epoch, files, schema, self._partition_by, {})
            if not is_ours:
                # Another process with this query's checkpoint was faster.
                self._remove_failed_attempts(epoch)
                return Written(rows=0, was_there=True)
            self._steps("committed")
        self._remove_all_but([file.path for file in files], self._attempts(epoch))
        return Written(
            rows=sum(file.rows for file in files),
            files=len(files),
            size=sum(file.size for file in files),
        )

    @contextmanager
    def _given_up(self, epoch: Epoch, folder: str, *, is_commit: bool) -> Iterator[None]:
        """Leave nothing on a disk that may be full of it, unless it became part of the table.

        A catalog elsewhere may still take a commit of which we heard nothing more; only where our
        own disk was full it is certain that it does not.
        """
        try:
            yield
        except Exception as failure:
            with suppress(Exception):
                if not is_commit or (is_own_disk_full(failure) and not self._holds(epoch)):
                    remove_tree(Path(self._table.root) / folder)
            raise

    def _check_presence(self, files: Sequence[DataFile]) -> None:
        """A folder that only the executors' machines have would give a table without files."""
        for file in files:
            path = f"{self._table.root}/{file.path}"
            try:
                size = os.stat(path).st_size
            except FileNotFoundError:
                size = None
            if size != file.size:
                raise LakeRefused(
                    f"The driver does not see the file {path!r}, which a task wrote:"
                    " all machines must share the table's folder under one path."
                )

    def _remove_failed_attempts(self, epoch: Epoch) -> None:
        """For a batch that somebody committed who did not come to this."""
        attempts = self._attempts(epoch)
        if attempts:
            committed = [path.removeprefix(f"{self._table.root}/") for path in self._table.paths()]
            self._remove_all_but(committed, attempts)

    def _attempts(self, epoch: Epoch) -> list[Path]:
        return list((Path(self._table.root) / DATA / epoch.query).glob(f"{epoch.batch}-*"))

    def _remove_all_but(self, kept: Sequence[str], attempts: Iterable[Path]) -> None:
        """Remove attempts that were given up, and files of tasks that Spark tried again."""
        keep = {Path(self._table.root) / path for path in kept}
        for attempt in attempts:
            files = [path for path in attempt.rglob("*") if path.is_file()]
            if keep.isdisjoint(files):
                remove_tree(attempt)
                continue
            for path in files:
                if path not in keep:
                    path.unlink(missing_ok=True)
