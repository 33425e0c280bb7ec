"""What every table of Parquet files is to its users: epochs of data files, each committed once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.model.errors import Explained
from penstock.pipelines.sinks.sink import Epoch

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics:
    """Of one column in one file; bounds are None where there are none or they can't be had."""

    nulls: int
    least: Any = None
    greatest: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A Parquet file that a task has finished, as the task itself saw it while writing."""

    path: str
    """Relative to the table's root, with slashes."""
    rows: int
    size: int
    sha256: str
    partition: Mapping[str, str | None] = field(default_factory=dict)
    """By partition column, as text; None is null."""
    statistics: Mapping[str, ColumnStatistics] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """An epoch that a table holds, with its files."""

    version: int
    """Counts up with each commit of the table; not necessarily by one."""
    epoch: Epoch
    files: tuple[DataFile, ...]
    details: Mapping[str, Any] = field(default_factory=dict)


class LakeRefused(Explained):
    """The table can't take or give this; the text is one sentence that names the table."""


class LakeTable(Protocol):
    """`parquet_table.py`, `delta_table.py` and `iceberg_table.py`; made by `opening.py`."""

    @property
    def root(self) -> str:
        """The absolute folder below which data files are."""

    def exists(self) -> bool: ...

    def schema(self) -> "pa.Schema":
        """Of the rows, partition columns included."""

    def check(self, schema: "pa.Schema", partition_by: Sequence[str]) -> "pa.Schema":
        """How files of the table hold such rows; refuses rows that it can't take.

        What a table that evolves would have to become is changed by `commit` alone.
        """

    def last_batch(self, query: str) -> int | None:
        """The greatest batch of a query that is committed."""

    def queries(self, pipeline: str, flow: str) -> frozenset[str]:
        """Ids of the queries of this flow that have committed here."""

    def commit(
        self,
        epoch: Epoch,
        files: Sequence[DataFile],
        schema: "pa.Schema",
        partition_by: Sequence[str],
        details: Mapping[str, Any],
    ) -> bool:
        """Make the files part of the table, all or none, and remember the epoch with them.

        Makes the table if there is none, and changes one that evolves if the files need it. An
        epoch that is committed already is left alone: then the answer is False, and the files are
        not the table's.
        """

    def sync(self) -> None:
        """Bring every commit to the disk, also one whose process was killed before it did.

        Anyone who lets others rely on a commit that is not its own needs this first.
        """

    def version(self) -> int:
        """Of the last commit; -1 before the first."""

    def paths(self, after: int = -1, until: int | None = None) -> list[str]:
        """Absolute paths of files that commits in (after, until] added, in their order."""

    def drop(self) -> None:
        """There is no such table from here on; what is in its `data` folder is nobody's."""
