"""What reading is compared with: Python data sources that do no work of their own.

Workers import this module by its name, so Spark has to be started with the project on its path.
"""

import functools
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.columns.arrow_layout import arrow_schema
from penstock.columns.layout import COLUMNS, spark_schema

# As the source gives them when headers are not asked for.
PLAIN_COLUMNS = COLUMNS[:-1]
START_OFFSET = {"offset": 0}


class Slice(InputPartition):
    def __init__(self, partition: int, records: int) -> None:
        self.partition = partition
        self.records = records


@functools.cache
def ready_made(rows: int, value_bytes: int, partition: int) -> pa.RecordBatch:
    """Made once in the life of a worker."""
    noise = os.urandom(value_bytes + rows)
    now_us = time.time_ns() // 1000
    columns: dict[str, Any] = {
        "key": [number.to_bytes(8, "big") for number in range(rows)],
        "value": [noise[number : number + value_bytes] for number in range(rows)],
        "topic": ["ready-made"] * rows,
        "partition": [partition] * rows,
        "offset": range(rows),
        "timestamp": [now_us] * rows,
        "timestampType": [0] * rows,
    }
    schema = arrow_schema(PLAIN_COLUMNS)
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class InMemoryReading:
    """Both readers of the source: `records` in `partitions` tasks, in batches of `rows`."""

    def __init__(self, options: dict[str, str]) -> None:
        self.records = int(options["records"])
        self.tasks = int(options["partitions"])
        self.rows = int(options["rows"])
        self.value_bytes = int(options["valuebytes"])

    def slices(self) -> list[Slice]:
        return [Slice(number, self.records // self.tasks) for number in range(self.tasks)]

    def batches(self, part: Slice) -> Iterator[pa.RecordBatch]:
        batch = ready_made(self.rows, self.value_bytes, part.partition)
        whole, rest = divmod(part.records, self.rows)
        for _ in range(whole):
            yield batch
        if rest:
            yield batch.slice(0, rest)


class InMemoryBatchReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.reading = InMemoryReading(options)

    def partitions(self) -> Sequence[InputPartition]:
        return self.reading.slices()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        return self.reading.batches(partition)


class InMemoryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Everything in one micro-batch, as a trigger without limits reads a topic."""

    def __init__(self, options: dict[str, str]) -> None:
        self.reading = InMemoryReading(options)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return START_OFFSET

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is available never changes."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"offset": self.reading.records}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self.reading.slices() if start != end else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        return self.reading.batches(partition)


class InMemorySource(DataSource):
    """Ready-made Arrow batches without a network."""

    @classmethod
    def name(cls) -> str:
        return "ready_made"

    def schema(self) -> str:
        return spark_schema(PLAIN_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return InMemoryBatchReader(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return InMemoryStreamReader(dict(self.options))


class ConstantStreamReader(DataSourceStreamReader):
    """Each trigger finds one row more, always the same one."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return START_OFFSET

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"offset": start["offset"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [Slice(0, 1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        yield (b"key", b"value", "constant", 0, 0, None, 0)


class ConstantSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "constant_row"

    def schema(self) -> str:
        return spark_schema(PLAIN_COLUMNS)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return ConstantStreamReader()
