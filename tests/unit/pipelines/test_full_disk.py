"""On a disk that is really full nothing half-written counts, at whichever file the room ran out.

Each test leaves a little more room than before until all that is to be written fits. Whatever fails
says which table, archive or storage it is, and the same again with room gives each row once.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.model.errors import Explained
from penstock.pipelines.archives.replay_note import ReplayNote, State, notes, write_note
from penstock.pipelines.archives.verifying import Verification
from penstock.pipelines.lakes import numbered_files
from penstock.pipelines.lakes.lake_table import LakeTable
from penstock.pipelines.lakes.opening import open_table
from penstock.pipelines.running.progress import BatchProgress, ProgressLog
from penstock.pipelines.running.run_record import RunBook, RunState, last_run, new_run
from penstock.pipelines.running.storage import Storage
from penstock.pipelines.sinks import lake_sink
from penstock.pipelines.sinks.lake_sink import LakeWriter
from penstock.pipelines.specification.model import LakeFormat
from tests.unit.pipelines.archives.rig import Frame, TestArchive, write
from tests.unit.pipelines.lakes.lake_rig import epoch, write_files
from tests.unit.pipelines.running.rig import pipeline
from tests.unit.pipelines.sinks.test_lake_sink import FRAME
from tests.unit.pipelines.small_disk import PAGE, SmallDisk, small_disk

FORMATS = pytest.mark.parametrize("lake_format", list(LakeFormat), ids=str)
PAGES_MAX = 60
EPOCHS = {LakeFormat.PARQUET: 6, LakeFormat.DELTA: 4, LakeFormat.ICEBERG: 2}
# Where what keeps a table quick is written often, it is written on a full disk too.
OPTIONS = {LakeFormat.DELTA: {"delta.checkpointInterval": "2"}}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


@pytest.fixture(autouse=True)
def often_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_files, "SIZES", (2, 4))
    monkeypatch.setattr(numbered_files, "KEPT", 1)


def until_it_fits(
    disk: SmallDisk, act: Callable[[int], Any], check: Callable[[], None] = lambda: None
) -> list[str]:
    """What was said each time that there was too little room, which is free at the end.

    `act` is told how many pages it has to leave free; `check` comes after each time that it failed.
    """
    said = []
    for pages in range(PAGES_MAX):
        try:
            act(pages)
            return said
        except Explained as refused:
            said.append(str(refused))
        finally:
            disk.free()
        check()
    raise AssertionError(f"{PAGES_MAX} pages are not enough")


def full(what: object) -> str:
    return (
        f"The disk of {what} is full: free some space and run the same command again. It continues"
        " where it was."
    )


class Tasks:
    """Stand for Spark's, which still find room; the driver has what is left after them."""

    def __init__(self, disk: SmallDisk) -> None:
        self._disk = disk
        self.pages = 0

    def __call__(self, _: Any, __: Any, root: str, folder: str, *___: Any, **____: Any) -> Any:
        files = write_files(root, [("a", 1)], folder=folder)
        self._disk.fill(self.pages * PAGE)
        return files


@FORMATS
def test_a_commit_without_room_is_refused_and_done_later(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, lake_format: LakeFormat
) -> None:
    root = str(disk.path / "lake")
    tasks = Tasks(disk)
    monkeypatch.setattr(lake_sink, "write_frame", tasks)
    said = []

    def table() -> LakeTable:
        """As another process sees it."""
        return open_table(lake_format, root, OPTIONS.get(lake_format))

    # Making the table, adding to it, and what comes every few commits.
    for batch in range(EPOCHS[lake_format]):

        def commit(pages: int, batch: int = batch) -> None:
            tasks.pages = pages
            LakeWriter(table()).write(FRAME, epoch(batch))

        def check(batch: int = batch) -> None:
            # A commit that came through, though what should follow it did not, stays.
            is_there = table().last_batch("query-1") == batch
            assert len(_paths(table())) == batch + is_there
            assert set(_files(root)) == set(_paths(table())), "attempts do not pile up"

        said += until_it_fits(disk, commit, check)
        assert len(_paths(table())) == batch + 1
        assert table().last_batch("query-1") == batch
        assert LakeWriter(table()).write(FRAME, epoch(batch)).was_there
    assert set(said) == {full(f"the table {root!r}")}
    assert len(said) >= EPOCHS[lake_format]


def _paths(table: LakeTable) -> list[str]:
    return table.paths() if table.exists() else []


def _files(root: str) -> list[str]:
    return [str(path) for path in Path(root, "data").rglob("*.parquet")]


@FORMATS
def test_an_archive_without_room_goes_on_and_is_complete(
    disk: SmallDisk, lake_format: LakeFormat
) -> None:
    archive = TestArchive(disk.path / "archive", lake_format)
    said = []
    for number in range(EPOCHS[lake_format]):
        start = 10 * number

        def add(pages: int, number: int = number, start: int = start) -> None:
            disk.fill(pages * PAGE)
            receipts = [archive.receipt(0, start, start + 10)]
            write(archive.sink(), Frame(receipts), archive.epoch(number))

        said += until_it_fits(disk, add)
        verdict = Verification(archive.root).run()
        assert (verdict.rows, verdict.findings) == (start + 10, ())
    assert set(said) == {full(f"the archive {archive.root}")}
    assert len(said) >= EPOCHS[lake_format] * 2


def test_a_replay_without_room_for_its_note_can_begin_and_end_later(disk: SmallDisk) -> None:
    note = ReplayNote(
        replay="one", topic="back", topic_id="id", selection={}, spans=(), bases={0: 7}
    )
    for state in (State.UNFINISHED, State.FINISHED):

        def keep(pages: int, state: State = state) -> None:
            disk.fill(pages * PAGE)
            write_note(disk.path, replace(note, state=state))

        said = until_it_fits(disk, keep)
        assert said == [full(f"the archive {disk.path}")]
        assert [each.state for each in notes(disk.path)] == [state]
        assert len(list((disk.path / "_replays").iterdir())) == 1, "no draft takes room"


def test_progress_that_found_no_room_leaves_no_half_line(disk: SmallDisk) -> None:
    log = ProgressLog(disk.path / "progress.jsonl")
    one = BatchProgress(at_ms=1, query="q" * 3000, batch=0, rows_in=1, batch_ms=1)
    log.append(one)
    disk.fill()
    with pytest.raises(OSError, match="No space left"):
        log.append(replace(one, batch=1))
    assert [each.batch for each in log.last(9)] == [0]
    disk.free()
    log.append(replace(one, batch=2))
    assert [each.batch for each in log.last(9)] == [0, 2]


def test_what_is_known_of_a_run_is_not_covered_up_by_a_full_disk(disk: SmallDisk) -> None:
    storage = Storage(disk.path)
    book = RunBook(storage, new_run(pipeline(disk.path, [], []), once=True))
    disk.fill()
    book.state(RunState.STOPPING)
    book.ended("The disk of the table is full.")
    found = last_run(storage)
    assert found is not None
    assert found.state is RunState.KILLED, "as far as others can know"
    disk.free()
    book.ended("The disk of the table is full.")
    found = last_run(storage)
    assert found is not None
    assert (found.state, found.error) == (RunState.FAILED, "The disk of the table is full.")


def test_a_disk_is_filled_while_others_write_to_it(disk: SmallDisk) -> None:
    """Spark does while a test fills its disk, which must not fail in its place."""
    is_over = threading.Event()

    def write() -> None:
        for number in itertools.cycle(range(8)):
            if is_over.is_set():
                return
            with suppress(OSError):
                (disk.path / f"{number}").write_bytes(bytes(PAGE * (1 + number)))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for pages in itertools.islice(itertools.cycle(range(4)), 200):
            disk.fill(pages * PAGE)
    finally:
        is_over.set()
        writer.join()
    disk.fill(2 * PAGE)
    assert disk.free_bytes == 2 * PAGE
