"""`df.writeStream.format("penstock")`: appends each micro-batch to topics, at least once.

The output mode `complete` is taken as Spark's Kafka sink takes it: nothing can be removed from a
topic, so every trigger appends the whole result. Spark itself refuses `update` for every sink in
Python, before any of this is asked: `penstock.spark.write_updates` is the way around.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.spark.writing.plan import write_plan
from penstock.spark.writing.receipt import log_abort, log_commit

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        """`overwrite` is true in the output mode `complete`; it changes nothing."""
        self._plan = write_plan(options, schema, streaming=True).having_looked()

    def write(self, iterator: "Iterator[RecordBatch]") -> WriterCommitMessage:
        return self._plan.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if batchId == 0:
            # A writer is made for every trigger; what holds for all of them is told once.
            self._plan.log_notes()
        log_commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        log_abort(messages)
