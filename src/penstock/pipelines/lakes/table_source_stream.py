"""The data source behind `table_frame`: a lake table as Spark asks for it, in batch and stream.

What it reads is told by one option as JSON, because Spark changes the case of options' names.
"""

# Spark names the methods.
# ruff: noqa: N802

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from penstock.pipelines.lakes.table_source_options import TableSourceOptions, table_source_options
from penstock.pipelines.lakes.table_source_planning import (
    Position,
    TableFile,
    TablePlanner,
    shared_out,
    table_files,
)
from penstock.pipelines.specification.model import LakeFormat

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.pipelines.lakes.lake_table import LakeTable

NAME = "penstock_table"
DESCRIPTION = "description"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """Which table, and how it is to be read; small, and pickled to the tasks."""

    format: str
    root: str
    options: Mapping[str, str]
    tasks_wanted: int

    def to_text(self) -> str:
        return json.dumps([self.format, self.root, dict(self.options), self.tasks_wanted])

    @staticmethod
    def from_text(text: str) -> "TableDescription":
        lake_format, root, options, tasks_wanted = json.loads(text)
        return TableDescription(
            format=lake_format, root=root, options=options, tasks_wanted=tasks_wanted
        )

    @property
    def source_options(self) -> TableSourceOptions:
        return table_source_options(self.options, self.root)

    def open(self) -> "LakeTable":
        from penstock.pipelines.lakes.opening import open_table

        return open_table(LakeFormat(self.format), self.root, self.source_options.table)


class FileShare(InputPartition):
    """The files of one task."""

    def __init__(self, files: Sequence[TableFile]) -> None:
        super().__init__(None)
        self.files = tuple(files)


class LakeTableSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: "StructType") -> DataSourceReader:
        return TableReader(self._description(), schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        return TableStreamReader(self._description(), schema)

    def _description(self) -> TableDescription:
        return TableDescription.from_text(self.options[DESCRIPTION])


class TableReader(DataSourceReader):
    """All rows of the table as it is when the read is planned."""

    def __init__(self, description: TableDescription, schema: "StructType") -> None:
        self._description = description
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        files = table_files(self._description.open())
        return _shares(files, self._description)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return _read(partition, self._schema, self._description)


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One process plans a query for as long as it runs; tasks see copies that never plan."""

    def __init__(self, description: TableDescription, schema: "StructType") -> None:
        self._description = description
        self._schema = schema
        self._planner: TablePlanner | None = None

    def __getstate__(self) -> dict[str, object]:
        """An open table stays where it was opened."""
        return {**self.__dict__, "_planner": None}

    def initialOffset(self) -> Json:
        return dict(self._planning().initial().to_json())

    def prepareForTriggerAvailableNow(self) -> None:
        self._planning().stop_at_now()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark hands this back, or ReadAllAvailable where the trigger allows no limit."""
        commits_max = self._description.source_options.commits_per_trigger_max
        return ReadAllAvailable() if commits_max is None else ReadMaxFiles(commits_max)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        begin = Position.from_json(start)
        end = self._planning().end(begin, limited=not isinstance(limit, ReadAllAvailable))
        return dict(end.to_json())

    def reportLatestOffset(self) -> Json | None:
        latest = self._planning().latest
        return None if latest is None else {"version": latest}

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        files = self._planning().files(Position.from_json(start), Position.from_json(end))
        return _shares(files, self._description)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return _read(partition, self._schema, self._description)

    def _planning(self) -> TablePlanner:
        if self._planner is None:
            description = self._description
            self._planner = TablePlanner(description.open(), description.source_options)
        return self._planner


def _shares(files: Sequence[TableFile], description: TableDescription) -> list[InputPartition]:
    return [FileShare(share) for share in shared_out(files, description.tasks_wanted)]


def _read(
    partition: InputPartition, schema: "StructType", description: TableDescription
) -> "Iterator[pa.RecordBatch]":
    from pyspark.sql.pandas.types import to_arrow_schema

    from penstock.pipelines.lakes.table_source_reading import read_files

    assert isinstance(partition, FileShare)
    return read_files(partition.files, to_arrow_schema(schema, timezone="UTC"), description.root)
