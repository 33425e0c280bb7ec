"""Proves where an Iceberg table is registered, and that several writers may share one."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from penstock.pipelines.lakes.iceberg_table import IcebergTable
from penstock.pipelines.lakes.lake_table import LakeRefused
from tests.unit.pipelines.lakes.iceberg_rig import append, reading, seen_by_pyiceberg

WRITERS = 4
BATCHES = 3


def test_another_catalog_has_the_table_under_its_name(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/shared.db"
    options = {"uri": uri, "namespace": "plant", "table": "readings"}
    table = IcebergTable(str(tmp_path / "folder"), options)
    assert append(table, 0, [reading("a", 1, 1.0)])

    catalog = SqlCatalog("penstock", uri=uri)
    assert catalog.load_table("plant.readings").scan().count() == 1
    assert not (tmp_path / "folder" / "catalog.db").exists()
    table.drop()
    assert not catalog.table_exists("plant.readings")
    assert not table.exists()


def test_a_dropped_table_can_be_made_anew(tmp_path: Path) -> None:
    table = IcebergTable(str(tmp_path / "readings"))
    append(table, 0, [reading("a", 1, 1.0)], ["sensor"])
    table.drop()
    assert not table.exists()
    assert append(table, 0, [reading("a", 1, 1.0)])
    assert seen_by_pyiceberg(table).scan().count() == 1


def test_a_path_may_hold_odd_signs(tmp_path: Path) -> None:
    table = IcebergTable(str(tmp_path / "50% of a#b?c=d [é]"))
    assert append(table, 0, [reading("a/b", 1, 1.0)], ["sensor"])
    assert append(table, 1, [reading("c", 1, 1.0)], ["sensor"])
    assert all(Path(path).is_file() for path in table.paths())
    assert IcebergTable(table.root).last_batch("query-a") == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"namespce": "x"}, "has no option namespce; the nearest is namespace."),
        ({"table": " "}, "The option table of the Iceberg table"),
        ({"snapshotsKept": "none"}, "must be a positive whole number, not 'none'."),
    ],
)
def test_options_are_checked_at_once(
    tmp_path: Path, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(LakeRefused) as refused:
        IcebergTable(str(tmp_path), options)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "options", [{"catalog": "nowhere"}, {"uri": "gopher://x"}, {"uri": "sqlite:////no/such/x.db"}]
)
def test_a_catalog_that_can_not_be_opened_is_named(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(LakeRefused) as refused:
        IcebergTable(str(tmp_path), options).exists()
    assert str(refused.value).startswith("The catalog '")
    assert "\n" not in str(refused.value)


def test_writers_that_begin_at_once_lose_no_epoch(tmp_path: Path) -> None:
    path = str(tmp_path / "readings")
    barrier = threading.Barrier(WRITERS)

    def write(query: str) -> list[bool]:
        table = IcebergTable(path)
        barrier.wait(30)
        rows = [reading(query, 1, 1.0)]
        return [append(table, batch, rows, query=query) for batch in range(BATCHES)]

    queries = [f"query-{number}" for number in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        assert list(pool.map(write, queries)) == [[True] * BATCHES] * WRITERS

    table = IcebergTable(path)
    assert seen_by_pyiceberg(table).scan().count() == WRITERS * BATCHES
    assert len(table.paths()) == WRITERS * BATCHES
    assert {table.last_batch(query) for query in queries} == {BATCHES - 1}
