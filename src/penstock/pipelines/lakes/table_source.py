"""A lake table as a DataFrame: all that it holds, or a stream of what is committed to it.

In batch Spark itself reads the files, unless a table keeps columns outside of them; a stream comes
through a data source whose positions are the table's commits.
"""

import re
from typing import TYPE_CHECKING

from penstock.pipelines.lakes.lake_table import LakeRefused, LakeTable
from penstock.pipelines.lakes.opening import open_table
from penstock.pipelines.lakes.table_source_options import table_source_options
from penstock.pipelines.specification.model import LakeFormat, Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.pipelines.lakes.table_source_planning import TableFile

# What Hadoop would take for a pattern in a path.
_PATTERN_SIGNS = re.compile(r"([\\*?\[\]{}])")


def table_frame(
    spark: "SparkSession",
    lake_format: LakeFormat,
    path: str,
    is_stream: bool,
    options: Options | None = None,
    schema: str | None = None,
) -> "DataFrame":
    """The options are `maxCommitsPerTrigger` and `startingVersion`, and those of the table itself.

    `schema` (DDL) stands in for a table that does not exist yet: a batch of it has no rows, and a
    stream waits for it. Raises LakeRefused with one sentence.
    """
    given = table_source_options(options or {}, path)
    table = open_table(lake_format, path, given.table)
    columns = _columns(table, schema)
    if is_stream:
        return _through_source(spark, lake_format, table, options or {}, columns, is_stream=True)
    return _batch(spark, lake_format, table, options or {}, columns)


def _batch(
    spark: "SparkSession",
    lake_format: LakeFormat,
    table: LakeTable,
    options: Options,
    columns: "StructType",
) -> "DataFrame":
    from penstock.pipelines.lakes.table_source_planning import table_files

    files = table_files(table) if table.exists() else []
    if not files:
        return spark.createDataFrame([], columns)
    if any(file.outside for file in files):
        return _through_source(spark, lake_format, table, options, columns, is_stream=False)
    return spark.read.schema(columns).parquet(*_patterns(files))


def _patterns(files: "list[TableFile]") -> list[str]:
    return [_PATTERN_SIGNS.sub(r"\\\1", file.path) for file in files]


def _through_source(
    spark: "SparkSession",
    lake_format: LakeFormat,
    table: LakeTable,
    options: Options,
    columns: "StructType",
    *,
    is_stream: bool,
) -> "DataFrame":
    from penstock.pipelines.lakes.table_source_stream import (
        DESCRIPTION,
        NAME,
        TableDescription,
    )

    description = TableDescription(
        format=lake_format.value,
        root=table.root,
        options=options,
        tasks_wanted=spark.sparkContext.defaultParallelism,
    )
    reader = spark.readStream if is_stream else spark.read
    described = reader.format(NAME).schema(columns)
    return described.option(DESCRIPTION, description.to_text()).load()


def _columns(table: LakeTable, schema: str | None) -> "StructType":
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    if table.exists():
        return from_arrow_schema(table.schema().remove_metadata())
    if schema is None:
        raise LakeRefused(
            f"There is no table at {table.root!r} yet: until it exists, its source needs a schema."
        )
    columns = StructType.fromDDL(schema)
    assert isinstance(columns, StructType)
    return columns
