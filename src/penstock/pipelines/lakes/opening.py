"""Finds the table that a path and a format stand for; nothing is made before the first commit."""

import os
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from penstock.pipelines.lakes.lake_table import LakeRefused, LakeTable
from penstock.pipelines.specification.model import LakeFormat, Options


def open_table(
    lake_format: LakeFormat,
    path: str,
    options: Options | None = None,
    *,
    evolves: bool = False,
) -> LakeTable:
    """A table in a folder that the driver and all executors see under the same path.

    One that evolves gains the columns and the wider types of rows that are committed to it.
    """
    folder = table_folder(path)
    given = options or {}
    match lake_format:
        case LakeFormat.PARQUET:
            from penstock.pipelines.lakes.parquet_table import ParquetTable

            _refuse_options(given, folder, "Parquet", ())
            return ParquetTable(folder, evolves=evolves)
        case LakeFormat.DELTA:
            from penstock.pipelines.lakes.delta_table import DeltaTable

            _refuse_options(given, folder, "Delta", ("delta.",))
            return DeltaTable(folder, given, evolves=evolves)
        case LakeFormat.ICEBERG:
            from penstock.pipelines.lakes.iceberg_table import IcebergTable

            return IcebergTable(folder, given, evolves=evolves)


def keeps_partition_columns(lake_format: LakeFormat) -> bool:
    """Whether files hold the columns that a table is partitioned by.

    Delta keeps their values in its log alone; Iceberg takes them from the files, and plain Parquet
    has no other place for them.
    """
    return lake_format is not LakeFormat.DELTA


def table_folder(path: str) -> str:
    """The absolute folder that a path or a `file:` address names."""
    parts = urlsplit(path)
    # A letter alone before the colon, or a path with a colon further on, is not an address.
    if "://" not in path and parts.scheme != "file":
        return os.path.abspath(path)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return os.path.abspath(unquote(parts.path))
    raise LakeRefused(
        f"The table {path!r} is not in a folder: tables can be in local or shared folders only."
    )


def _refuse_options(
    given: Mapping[str, str], folder: str, kind: str, prefixes: tuple[str, ...]
) -> None:
    for name in given:
        if not name.startswith(prefixes):
            taken = f", only those that start with {prefixes[0]!r}" if prefixes else ""
            raise LakeRefused(
                f"The {kind} table {folder!r} does not take the option {name!r}{taken}."
            )
