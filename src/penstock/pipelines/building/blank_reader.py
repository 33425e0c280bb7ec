"""Reads nothing: frames with the columns of the sources and without rows, to check a pipeline."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StructType

from penstock.columns.layout import COLUMNS, spark_schema
from penstock.pipelines.building.refusing import refusing
from penstock.pipelines.specification.model import (
    ArchiveSource,
    FileSource,
    Source,
    TableSource,
    TopicSource,
)
from penstock.pipelines.specification.problems import SpecificationRefused
from penstock.spark.options.reading import read_options


class BlankReader:
    """Needs no broker and no data. A table's columns are read if it exists already."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, source: Source) -> DataFrame:
        schema = self._schema(source)
        is_stream = isinstance(source, TopicSource) or source.is_stream
        if is_stream:
            return blank_stream(self._spark, schema)
        return self._spark.createDataFrame([], schema)

    def _schema(self, source: Source) -> StructType:
        match source:
            case TopicSource():
                options = read_options(source.options, streaming=True)
                return columns_of(spark_schema(options.columns))
            case FileSource():
                with refusing(source.place, source.schema_place):
                    return columns_of(source.schema)
            case TableSource():
                return _table_schema(source)
            case ArchiveSource():
                return columns_of(spark_schema(COLUMNS))


def blank_stream(spark: SparkSession, schema: StructType) -> DataFrame:
    """A stream with these columns that never has a row."""
    # Any stream will do, and Spark's own source of ticks is there without files and brokers.
    ticks = spark.readStream.format("rate").load().where(sf.lit(False))
    return ticks.select(
        *(sf.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields)
    )


def columns_of(ddl: str) -> StructType:
    found = DataType.fromDDL(ddl)
    # One type alone is DDL too, and then there is one column.
    return found if isinstance(found, StructType) else StructType().add("value", found)


def _table_schema(source: TableSource) -> StructType:
    from penstock.pipelines.lakes.opening import open_table
    from penstock.pipelines.lakes.table_source_options import table_source_options

    options = table_source_options(source.options, source.path)
    table = open_table(source.format, source.path, options.table)
    if table.exists():
        return _spark_schema(table.schema().remove_metadata())
    if source.schema is None:
        raise SpecificationRefused.at(
            source.place,
            f"The table {source.path} of the source {source.name} does not exist yet: give its "
            "columns as schema.",
        )
    with refusing(source.place, source.schema_place):
        return columns_of(source.schema)


def _spark_schema(schema: object) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    found = from_arrow_schema(schema)
    assert isinstance(found, StructType)
    return found
