"""A stream whose options can't be honoured.

PySpark hides what is raised while a stream's reader is made behind a trouble of its own, so such a
reader is made nevertheless and refuses the first thing that it is asked.
"""

# Spark names the methods.
# ruff: noqa: N802

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from penstock.spark.options.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

Json = dict[str, Any]


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, sentence: str) -> None:
        self._sentence = sentence

    def _refuse(self) -> NoReturn:
        raise OptionError(self._sentence)

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:
        self._refuse()

    def initialOffset(self) -> Json:
        self._refuse()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        self._refuse()

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        self._refuse()
