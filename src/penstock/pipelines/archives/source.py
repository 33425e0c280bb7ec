"""A stream whose rows are receipts: its tasks write the records of a topic to files themselves.

The options are those of `.format("penstock")` and, as JSON, where the files go. Planning, limits
and what counts as a loss are the topic's own.
"""

# Spark names the methods.
# ruff: noqa: N802

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.pipelines.archives.receipts import SCHEMA
from penstock.spark.options.reading import ReadOptions, read_options
from penstock.spark.reading.stream import StreamReader
from penstock.spark.reading.topic_range import TopicRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.pipelines.archives.archiving_task import Target

NAME = "penstock_archiving"
TARGET_OPTION = "archivingtarget"


class ArchivingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        from penstock.pipelines.archives.archiving_task import Target

        options = {name.lower(): value for name, value in self.options.items()}
        target = Target(**json.loads(options.pop(TARGET_OPTION)))
        return ArchivingReader(read_options(options, streaming=True), target)


class ArchivingReader(StreamReader):
    def __init__(self, options: ReadOptions, target: "Target") -> None:
        super().__init__(options)
        self._target = target

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_target": self._target}

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        from penstock.pipelines.archives.archiving_task import archive_range

        assert isinstance(partition, TopicRange)
        receipt = archive_range(partition, self._options, self._target)
        yield pa.record_batch({"receipt": pa.array([receipt.to_json()], pa.string())})


def receipts_frame(
    spark: "SparkSession", options: Mapping[str, str], target: "Target"
) -> "DataFrame":
    """The stream of receipts; a task runs once for each stretch, whatever is done with its row."""
    text = json.dumps(dataclasses.asdict(target))
    reader = spark.readStream.format(NAME).options(**options).option(TARGET_OPTION, text)
    return reader.load()
