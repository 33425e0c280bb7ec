"""Sources that hold what a test case gives: each micro-batch is one file, read in its order.

Streams are read by Spark's own file source, one file per micro-batch, so that watermarks, state and
late rows behave as they do in a run.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.pipelines.specification.model import (
    UNDECODABLE,
    FileSource,
    Pipeline,
    Source,
    TopicSource,
)
from penstock.pipelines.trying.given_rows import GivenRows
from penstock.spark.options.reading import read_options

# Spark takes the files of a folder in the order of their modification times, in milliseconds.
FIRST_FILE_TIME_S = 1_000_000_000


class GivenReader:
    """A reader (see building/datasets.py) over rows that are at hand."""

    def __init__(self, spark: SparkSession, rows: Mapping[str, GivenRows], folder: Path) -> None:
        self._spark = spark
        self._rows = rows
        self._folder = folder

    def read(self, source: Source) -> DataFrame:
        """The given rows: records before decoding, or rows that take the place of decoded ones."""
        given = self._rows[source.name]
        folder = self._folder / source.name
        if not folder.exists():
            write_batches(given, folder)
        if is_stream(source):
            stream = self._spark.readStream.schema(given.schema).option("maxFilesPerTrigger", 1)
            rows = stream.parquet(str(folder))
        else:
            rows = self._spark.read.schema(given.schema).parquet(str(folder))
        return rows.select(*columns_read(source)) if isinstance(source, TopicSource) else rows


def columns_read(source: TopicSource) -> Sequence[str]:
    """Those of a record's columns that the source asks for."""
    return read_options(source.options, streaming=True).columns


def is_stream(source: Source) -> bool:
    return True if isinstance(source, TopicSource) else source.is_stream


def write_batches(given: GivenRows, folder: Path) -> None:
    """One Parquet file for each micro-batch; an empty one keeps its place in the order."""
    folder.mkdir(parents=True)
    schema = to_arrow_schema(given.schema, timezone="UTC")
    for number, batch in enumerate(given.batches):
        path = folder / f"{number:06}.parquet"
        pq.write_table(pa.Table.from_pylist([dict(row) for row in batch], schema), path)
        moment = FIRST_FILE_TIME_S + number
        os.utime(path, (moment, moment))


def without_decoding(pipeline: Pipeline, rows: Mapping[str, GivenRows]) -> Pipeline:
    """The pipeline with sources whose rows are decoded already as sources of such rows.

    What `rows` has besides, under the name of a dataset beside such a source, becomes a source too.
    """
    sources = dict(pipeline.sources)
    for name, given in rows.items():
        owner = pipeline.sources[name.removesuffix(UNDECODABLE)]
        if given.is_decoded:
            sources[name] = _plain_source(owner, name, given)
    return replace(pipeline, sources=sources)


def _plain_source(owner: Source, name: str, given: GivenRows) -> FileSource:
    is_itself = owner.name == name
    return FileSource(
        name=name,
        path=name,
        format="parquet",
        schema=given.schema.toDDL(),
        is_stream=is_stream(owner),
        watermark=owner.watermark if is_itself else None,
        rules=owner.rules if is_itself else (),
        place=owner.place,
    )
