"""`df.write.format("penstock")`: appends a DataFrame to topics.

Spark itself refuses the save modes `ignore` and `errorIfExists` (its default) for every source in
Python, so a batch is written with `mode("append")`.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.spark.writing.errors import InputError
from penstock.spark.writing.plan import write_plan
from penstock.spark.writing.receipt import log_abort, log_commit

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InputError(
                "A topic can't be overwritten, because records can only be added to it: "
                'write with mode("append").'
            )
        self._plan = write_plan(options, schema, streaming=False).having_looked()
        self._plan.log_notes()

    def write(self, iterator: "Iterator[RecordBatch]") -> WriterCommitMessage:
        return self._plan.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        log_commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        log_abort(messages)
