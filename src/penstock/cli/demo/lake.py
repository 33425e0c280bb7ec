"""Reads what a running pipeline has added to its tables since the last look."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.cli.demo.expectation import Window
from penstock.cli.demo.readings import microseconds
from penstock.pipelines.lakes.opening import open_table
from penstock.pipelines.specification.model import LakeFormat


class Follower:
    """New rows of one Delta table, commit by commit; a table that is not there yet has none."""

    def __init__(self, path: Path, columns: list[str]) -> None:
        self._table = open_table(LakeFormat.DELTA, str(path))
        self._columns = columns
        self._version = -1

    def new_rows(self) -> Iterator[dict[str, Any]]:
        import pyarrow.parquet

        if not self._table.exists():
            return
        version = self._table.version()
        for path in self._table.paths(after=self._version, until=version):
            yield from pyarrow.parquet.read_table(path, columns=self._columns).to_pylist()
        self._version = version


class Lake:
    """The two tables that the demonstration checks."""

    def __init__(self, folder: Path) -> None:
        columns = ["begins", "ends", "sensor", "readings", "average", "lowest", "highest"]
        self._readings = Follower(folder / "readings", ["sensor", "number"])
        self._averages = Follower(folder / "averages", columns)

    def new_readings(self) -> Iterator[tuple[str, int]]:
        return ((row["sensor"], row["number"]) for row in self._readings.new_rows())

    def new_windows(self) -> Iterator[Window]:
        for row in self._averages.new_rows():
            begins_us, ends_us = microseconds(row.pop("begins")), microseconds(row.pop("ends"))
            yield Window(begins_us=begins_us, ends_us=ends_us, **row)
