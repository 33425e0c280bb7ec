"""A Parquet table holds the same, and each epoch once, while and after its manifest is folded."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from penstock.pipelines.lakes import numbered_files
from penstock.pipelines.lakes.lake_table import DataFile, LakeRefused
from penstock.pipelines.lakes.manifest import FOLDER
from penstock.pipelines.lakes.parquet_table import ParquetTable
from tests.unit.pipelines.lakes.dying import Crash, dying_at, without_waiting
from tests.unit.pipelines.lakes.lake_rig import SCHEMA, append, epoch, write_files

COUNT = 21
WRITERS = 3
NEVER = -1


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_files, "SIZES", (4, 16))
    monkeypatch.setattr(numbered_files, "KEPT", 1)
    without_waiting(monkeypatch)


@pytest.fixture
def unfolded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ParquetTable:
    """As it was made before there was folding, by two queries."""
    table = ParquetTable(str(tmp_path / "lake"))
    with monkeypatch.context() as before:
        before.setattr(numbered_files, "KEPT", NEVER)
        for batch in range(COUNT):
            append(table, batch // 2, [("a", batch)], query=f"query-{batch % 2}")
    assert len(names(table)) == COUNT
    return table


def names(table: ParquetTable) -> list[str]:
    return sorted(path.name for path in (Path(table.root) / FOLDER).glob("0*"))


def everything(root: str) -> list[object]:
    """All that can be asked of a table, by somebody who opens it now."""
    table = ParquetTable(root)
    version = table.version()
    return [
        version,
        table.schema(),
        table.queries("iot", "raw"),
        [table.last_batch(f"query-{number}") for number in range(3)],
        list(table.commits()),
        table.paths(),
        [table.paths(after, after + 5) for after in range(-1, version - 4)],
        [table.paths(after) for after in range(-1, version + 1)],
    ]


def test_a_table_from_before_is_folded_and_stays_the_same(unfolded: ParquetTable) -> None:
    before = everything(unfolded.root)
    twin = f"{unfolded.root}-twin"
    shutil.copytree(unfolded.root, twin)
    numbered_files.NumberedFiles(Path(twin) / FOLDER).fold(COUNT)
    folded = ParquetTable(twin)
    assert len(names(folded)) == 1 + 1 + 1
    after = everything(twin)
    assert after[:5] == before[:5]
    assert [str(path).replace("-twin", "") for path in after[5]] == before[5]  # type: ignore[attr-defined]
    (Path(twin) / FOLDER / "latest").unlink()
    assert everything(twin) == after


def test_epochs_are_known_again_after_they_were_folded(unfolded: ParquetTable) -> None:
    files = write_files(unfolded.root, [("b", 1)])
    for batch in range(COUNT // 2, COUNT // 2 + 9):
        assert unfolded.commit(epoch(batch, query="query-1"), files, SCHEMA, (), {})
    assert len(names(unfolded)) < 10
    for number in range(COUNT):
        again = epoch(number // 2, query=f"query-{number % 2}")
        assert unfolded.commit(again, files, SCHEMA, (), {}) is False
    assert unfolded.version() == COUNT + 8
    assert len(unfolded.paths()) == COUNT + 9


def test_a_crash_at_any_point_of_a_commit_that_folds(
    unfolded: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest has 21 files: the commit folds five groups, and one of what comes of them."""
    files = write_files(unfolded.root, [("b", 1)])
    points = committed = 0
    for change in range(1_000):
        root = f"{unfolded.root}-{change}"
        shutil.copytree(Path(unfolded.root) / FOLDER, Path(root) / FOLDER)
        table = ParquetTable(root)
        try:
            with dying_at(monkeypatch, change):
                table.commit(epoch(99), files, SCHEMA, (), {})
            break
        except Crash:
            points += 1
        found = ParquetTable(root)
        was_there = found.last_batch("query-1") == 99
        assert len(list(found.commits())) == COUNT + was_there
        assert found.commit(epoch(99), files, SCHEMA, (), {}) is not was_there
        committed += was_there
        assert [commit.version for commit in found.commits()] == list(range(COUNT + 1))
        assert found.commit(epoch(99), files, SCHEMA, (), {}) is False
        shutil.rmtree(root)
    assert points > 35
    assert 0 < committed < points


def test_writers_and_readers_at_once(tmp_path: Path) -> None:
    root = str(tmp_path / "lake")
    (file,) = write_files(root, [("a", 1)])
    with ThreadPoolExecutor(WRITERS + 1) as pool:
        writing = [pool.submit(partial(_write, root, file, each)) for each in range(WRITERS)]
        reading = pool.submit(_read, root, lambda: all(each.done() for each in writing))
        for each in (*writing, reading):
            each.result()
    table = ParquetTable(root)
    found = [(commit.epoch.query, commit.epoch.batch) for commit in table.commits()]
    assert sorted(found) == sorted(
        (f"query-{writer}", batch) for writer in range(WRITERS) for batch in range(COUNT)
    )
    assert len(names(table)) < 20


def _write(root: str, file: DataFile, writer: int) -> None:
    table = ParquetTable(root)
    for batch in range(COUNT):
        files = [replace(file, path=f"{writer}-{batch}.parquet")]
        assert table.commit(epoch(batch, query=f"query-{writer}"), files, SCHEMA, (), {})


def _read(root: str, is_over: Callable[[], bool]) -> None:
    """What was there stays there, in its place."""
    before: list[object] = []
    while not is_over():
        commits = [(each.epoch.query, each.epoch.batch) for each in ParquetTable(root).commits()]
        assert commits[: len(before)] == before
        before = list(commits)


@pytest.fixture
def folded(unfolded: ParquetTable) -> ParquetTable:
    numbered_files.NumberedFiles(Path(unfolded.root) / FOLDER).fold(COUNT)
    return unfolded


def test_a_damaged_or_missing_fold_is_named(folded: ParquetTable) -> None:
    path = Path(folded.root) / FOLDER / names(folded)[1]
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(LakeRefused, match=rf"'{path}' can't be read: its checksum is wrong\."):
        folded.paths()
    assert len(folded.paths(until=15)) == 16, "what is not in it can be read"
    path.unlink()
    with pytest.raises(LakeRefused, match=r"is not complete: .*/0{18}16\.json is not there\."):
        folded.paths()
