"""A flow into a topic: each micro-batch is appended, at least once.

A batch that is written again after a crash is in the topic twice: a topic has no place to remember
an epoch in. Tables have one; anyone who reads a topic tells the same record apart by its key.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.pipelines.sinks.counting import counting
from penstock.pipelines.sinks.records import RecordShape, record_shape
from penstock.pipelines.sinks.sink import Epoch, SinkRefused, Written
from penstock.spark.options.errors import OptionError
from penstock.spark.writing.errors import InputError
from penstock.spark.writing.plan import write_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class TopicWriter:
    """`options` are those of `.format("penstock")`; `key` names the column that is the key."""

    def __init__(self, options: Mapping[str, str], key: str | None = None) -> None:
        self._options = dict(options)
        self._key = key

    def prepare(self, schema: "StructType") -> None:
        try:
            write_plan(self._options, self._shape(schema).schema(), streaming=False)
        except (OptionError, InputError) as refused:
            raise SinkRefused(str(refused)) from refused

    def write(self, frame: "DataFrame", epoch: Epoch) -> Written:
        records, count = counting(self._shape(frame.schema).records(frame))
        writer = records.write.format("penstock").mode("append")
        writer.options(**self._options).save()
        return Written(rows=count())

    def queries_before(self, pipeline: str, flow: str) -> frozenset[str]:
        """A topic does not know who wrote it."""
        return frozenset()

    def clear(self) -> None:
        """Records stay: others may have written them, and others may still read them."""

    def _shape(self, schema: "StructType") -> RecordShape:
        has_topic = any(name.lower() == "topic" for name in self._options)
        return record_shape(schema, key=self._key, has_topic=has_topic)
