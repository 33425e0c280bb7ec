"""The data source that Spark finds under the name `penstock`.

Spark imports this module in each of its Python processes, also where nothing is read or written, so
it loads the rest only when it is asked for it.
"""

# Spark names the methods.
# ruff: noqa: N802

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from penstock.columns.layout import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Spark refuses a reader that takes filters unless the session has switched push-down on, and only
# then does it plan reads in a process that has loaded this module.
PUSH_DOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class PenstockSource(DataSource):
    """Topics as a DataFrame, with the columns and options of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        from penstock.spark.options.reading import columns_of

        return spark_schema(columns_of(self.options))

    def reader(self, schema: "StructType") -> DataSourceReader:
        from penstock.spark.options.reading import read_options
        from penstock.spark.reading.batch import BatchReader, FilteringBatchReader
        from penstock.spark.reading.fixed_schema import check_schema

        options = read_options(self.options, streaming=False)
        check_schema(schema, options.columns)
        return FilteringBatchReader(options) if takes_filters() else BatchReader(options)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        from penstock.spark.options.errors import OptionError
        from penstock.spark.options.reading import read_options
        from penstock.spark.reading.fixed_schema import check_schema
        from penstock.spark.reading.refused import RefusedStreamReader
        from penstock.spark.reading.stream import StreamReader

        try:
            options = read_options(self.options, streaming=True)
            check_schema(schema, options.columns)
        except OptionError as error:
            return RefusedStreamReader(str(error))
        return StreamReader(options)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        from penstock.spark.writing.batch import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:
        from penstock.spark.writing.stream import StreamWriter

        return StreamWriter(self.options, schema, overwrite)


def takes_filters() -> bool:
    """Whether this process plans a read for a session with filter push-down."""
    main = sys.modules.get("__main__")
    started_as = getattr(getattr(main, "__spec__", None), "name", "")
    return PUSH_DOWN_WORKER in sys.modules or started_as == PUSH_DOWN_WORKER
