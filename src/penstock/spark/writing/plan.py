"""What all tasks of a write share: made on the driver, pickled to the executors."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from pyspark import TaskContext
from pyspark.sql.types import StructType

from penstock.client.connection import check_reachable
from penstock.client.errors import BrokerUnreachable
from penstock.spark.options.writing import WriteOptions, write_options
from penstock.spark.writing.epoch import TaskAttempt, task_attempt
from penstock.spark.writing.layout import InputLayout, input_layout
from penstock.spark.writing.receipt import Receipt

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_log = logging.getLogger(__name__)

# The driver only wants to know whether somebody is there, for every micro-batch again.
LOOK_TIMEOUT_S = 1.0
FIRST_BATCH = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    options: WriteOptions
    layout: InputLayout
    # Whether the driver has found a broker when it made the plan.
    was_reached: bool = False

    def having_looked(self) -> Self:
        """The same with a note whether a broker is there, which tells an outage from a mistake."""
        try:
            check_reachable(self.options.wire.bootstrap, LOOK_TIMEOUT_S)
        except BrokerUnreachable:
            return self
        return replace(self, was_reached=True)

    def log_notes(self) -> None:
        """Tell what was set and has no effect."""
        for note in self.options.notes:
            _log.warning("%s", note)

    def run(self, batches: "Iterator[RecordBatch]") -> Receipt:
        """One task, on an executor."""
        # The driver makes a plan for every write and every trigger, and again for each commit:
        # it must not load numpy and its kin for that.
        from penstock.spark.writing.task import write_task

        attempt = task_attempt(TaskContext.get())
        return write_task(
            batches, layout=self.layout, options=self.options_of(attempt), attempt=attempt
        )

    def options_of(self, attempt: TaskAttempt) -> WriteOptions:
        """A task waits out an outage, unless the address may never have been right.

        A stream that has come to its second micro-batch has written the first.
        """
        has_written = attempt.epoch is not None and attempt.epoch.batch_id > FIRST_BATCH
        if not (self.was_reached or has_written):
            return self.options
        return replace(self.options, wire=self.options.wire.once_reached())


def write_plan(options: Mapping[str, str], schema: StructType, *, streaming: bool) -> WritePlan:
    """Raises OptionError or InputError on the driver, before any task runs."""
    given = write_options(options, streaming=streaming)
    layout = input_layout(schema, topic=given.topic, with_timestamp=given.include_timestamp)
    return WritePlan(options=given, layout=layout)
