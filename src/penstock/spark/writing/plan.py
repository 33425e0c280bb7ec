"""What all tasks of a write share: made on the driver, pickled to the executors."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.types import StructType

from penstock.spark.options.writing import WriteOptions, write_options
from penstock.spark.writing.epoch import task_attempt
from penstock.spark.writing.layout import InputLayout, input_layout
from penstock.spark.writing.receipt import Receipt

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    options: WriteOptions
    layout: InputLayout

    def log_notes(self) -> None:
        """Tell what was set and has no effect."""
        for note in self.options.notes:
            _log.warning("%s", note)

    def run(self, batches: "Iterator[RecordBatch]") -> Receipt:
        """One task, on an executor."""
        # The driver makes a plan for every write and every trigger, and again for each commit:
        # it must not load numpy and its kin for that.
        from penstock.spark.writing.task import write_task

        return write_task(
            batches,
            layout=self.layout,
            options=self.options,
            attempt=task_attempt(TaskContext.get()),
        )


def write_plan(options: Mapping[str, str], schema: StructType, *, streaming: bool) -> WritePlan:
    """Raises OptionError or InputError on the driver, before any task runs."""
    given = write_options(options, streaming=streaming)
    layout = input_layout(schema, topic=given.topic, with_timestamp=given.include_timestamp)
    return WritePlan(options=given, layout=layout)
