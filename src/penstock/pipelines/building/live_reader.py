"""Reads sources where they are: topics from their brokers, files, tables and archives."""

from pyspark.sql import DataFrame, SparkSession

from penstock.pipelines.building.refusing import refusing
from penstock.pipelines.specification.model import (
    ArchiveSource,
    FileSource,
    Source,
    TableSource,
    TopicSource,
)
from penstock.spark.options.reading import read_options

TOPICS = "penstock"


class LiveReader:
    """For a run; nothing is read before a query starts."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, source: Source) -> DataFrame:
        match source:
            case TopicSource():
                return self._topics(source)
            case FileSource():
                return self._files(source)
            case TableSource():
                return self._table(source)
            case ArchiveSource():
                return self._archive(source)

    def _topics(self, source: TopicSource) -> DataFrame:
        # Refused here in one sentence, and not in a Python worker in twenty lines.
        read_options(source.options, streaming=True)
        return self._spark.readStream.format(TOPICS).options(**source.options).load()

    def _files(self, source: FileSource) -> DataFrame:
        with refusing(source.place, source.schema_place):
            reader = self._spark.readStream if source.is_stream else self._spark.read
            described = reader.schema(source.schema).format(source.format)
            return described.options(**source.options).load(source.path)

    def _table(self, source: TableSource) -> DataFrame:
        from penstock.pipelines.lakes.table_source import table_frame

        return table_frame(
            self._spark,
            source.format,
            source.path,
            source.is_stream,
            source.options,
            schema=source.schema,
        )

    def _archive(self, source: ArchiveSource) -> DataFrame:
        from penstock.pipelines.archives.reading import archive_frame

        return archive_frame(self._spark, source.path, source.is_stream, source.options)
