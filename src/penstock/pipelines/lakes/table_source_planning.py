"""From which commit to which each micro-batch of a table reads, and who reads which files.

The position of a stream, as Spark keeps it in the checkpoint, is the last commit that was read:
{"version": 7}. The end of the first batch says besides where it began, because Spark asks again for
the start when it must repeat that batch: {"start": -1, "version": 7}.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.pipelines.lakes.lake_table import LakeRefused, LakeTable
from penstock.pipelines.lakes.table_source_options import TableSourceOptions

TASK_BYTES_MAX = 128 * 1024 * 1024
TASK_BYTES_MIN = 4 * 1024 * 1024
# Opening a file costs about as much as reading this much of one.
FILE_BYTES_COST = 1024 * 1024

Json = dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A data file, and the values of columns that are not inside it, as text."""

    path: str
    size: int
    outside: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """All commits up to `version` are read; `start` is where the first batch began."""

    version: int | None = None
    start: int | None = None

    @property
    def reached(self) -> int:
        reached = self.start if self.version is None else self.version
        assert reached is not None
        return reached

    def to_json(self) -> Json:
        found = {"start": self.start, "version": self.version}
        return {name: number for name, number in found.items() if number is not None}

    @staticmethod
    def from_json(json: Mapping[str, int]) -> "Position":
        return Position(version=json.get("version"), start=json.get("start"))


class TablePlanner:
    """Belongs to one run of one query; what Spark tells it is all that outlives the run."""

    def __init__(self, table: LakeTable, options: TableSourceOptions) -> None:
        self._table = table
        self._options = options
        self._initial: Position | None = None
        self._final: int | None = None
        self.latest: int | None = None

    def initial(self) -> Position:
        """Where the first batch begins. Spark asks twice, and the answer must not move."""
        if self._initial is None:
            start = self._options.first_version - 1
            if self._options.starts_at_latest:
                start = self._table.version() if self._final is None else self._final
            self._initial = Position(start=start)
        return self._initial

    def stop_at_now(self) -> None:
        """No batch goes beyond what is committed as of this moment."""
        self._final = self._table.version()

    def end(self, start: Position, *, limited: bool) -> Position:
        """Where the batch after `start` ends; `start` itself while nothing is new."""
        self.latest = self._table.version() if self._final is None else self._final
        reached = start.reached
        if start.version is not None and self.latest < reached:
            raise LakeRefused(
                f"The last commit of the table {self._table.root!r} is {self.latest}, but the flow"
                f" has read up to commit {reached}: the table was created again, so the flow must"
                " start from the beginning too."
            )
        end = max(reached, self.latest)
        commits_max = self._options.commits_per_trigger_max
        if limited and commits_max is not None:
            end = min(end, reached + commits_max)
        if end == reached:
            return start
        return Position(version=end, start=start.start if start.version is None else None)

    def files(self, start: Position, end: Position) -> list[TableFile]:
        """What a batch reads; the same again when the batch must be repeated."""
        after = start.reached
        if start.version is None and end.start is not None:
            after = end.start
        if end.version is None or end.version <= after:
            return []
        return table_files(self._table, after, end.version)


def table_files(table: LakeTable, after: int = -1, until: int | None = None) -> list[TableFile]:
    """The files of commits in (after, until]; refuses if one is gone."""
    last = table.version() if until is None else until
    paths = table.paths(after, last)
    outside = _outside(table, after, last) if paths else {}
    return [
        TableFile(path=path, size=_size(path, table.root), outside=outside[path] if outside else {})
        for path in paths
    ]


def _outside(table: LakeTable, after: int, until: int) -> Mapping[str, Mapping[str, str | None]]:
    """By path, the values of columns that files do not hold: only Delta has such."""
    from penstock.pipelines.lakes.delta_table import DeltaTable

    if not isinstance(table, DeltaTable) or not table.partition_by():
        return {}
    from penstock.pipelines.lakes.table_source_delta import delta_partitions

    return delta_partitions(table.root, after, until)


def shared_out(files: Sequence[TableFile], tasks_wanted: int) -> list[list[TableFile]]:
    """Files of about the same size together for each task, in their order."""
    total = sum(file.size + FILE_BYTES_COST for file in files)
    wanted = -(-total // max(1, tasks_wanted))
    target = max(TASK_BYTES_MIN, min(TASK_BYTES_MAX, wanted))
    shares: list[list[TableFile]] = []
    room = 0
    for file in files:
        cost = file.size + FILE_BYTES_COST
        if cost > room:
            shares.append([])
            room = target
        shares[-1].append(file)
        room -= cost
    return shares


def file_gone(path: str, root: str) -> LakeRefused:
    return LakeRefused(
        f"The file {path!r} of the table {root!r} is gone: it was removed after it became part of"
        " the table, so its rows can no longer be read."
    )


def _size(path: str, root: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        raise file_gone(path, root) from None
