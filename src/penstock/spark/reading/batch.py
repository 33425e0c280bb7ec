"""A topic as a DataFrame of what it holds now."""

# Spark names the methods.
# ruff: noqa: N802

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from penstock.client.wire.cluster import WireCluster
from penstock.spark.options.reading import ReadOptions
from penstock.spark.reading.batch_planning import plan_batch
from penstock.spark.reading.filters import Narrowing
from penstock.spark.reading.notes import log_notes
from penstock.spark.reading.scanning import scan
from penstock.spark.reading.topic_range import TopicRange, topic_ranges

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Spark pickles it before it asks for partitions, so it keeps nothing but its options."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        log_notes(self._options.notes)
        with WireCluster(self._options.wire) as cluster:
            return topic_ranges(plan_batch(cluster, self._options, self._narrowing))

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        # Spark asks for one partition of its own making when there is nothing to read.
        if not isinstance(partition, TopicRange):
            return iter(())
        return scan(partition, self._options)


class FilteringBatchReader(BatchReader):
    """The same in a session with filter push-down, the only one where Spark accepts it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._narrowing.push(filters)

    def __getstate__(self) -> dict[str, object]:
        """Executors need no conditions, and those hold functions that can't be pickled."""
        return {"_options": self._options, "_narrowing": Narrowing()}
