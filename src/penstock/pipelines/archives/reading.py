"""An archive as a DataFrame: a topic's columns, in batch and as a stream of what is archived."""

from typing import TYPE_CHECKING

from penstock.columns.layout import COLUMNS
from penstock.pipelines.archives.description import archive_at
from penstock.pipelines.specification.model import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def archive_frame(
    spark: "SparkSession", path: str, is_stream: bool, options: Options
) -> "DataFrame":
    """Rows of the archive below a folder; `options` are those of the table's own source."""
    from pathlib import Path

    from penstock.pipelines.lakes.table_source import table_frame

    description = archive_at(Path(path))
    chosen = {**description.options, **options}
    return table_frame(spark, description.format, path, is_stream, chosen).select(*COLUMNS)
