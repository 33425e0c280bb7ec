"""Proves that an epoch is in an archive once, wherever the process that wrote it was killed."""

from pathlib import Path

import pytest

from penstock.pipelines.archives.description import archive_at
from penstock.pipelines.archives.ledger import Ledger, Span
from penstock.pipelines.archives.receipts import Receipt, joined_spans
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.archives.replaying import Archived
from penstock.pipelines.archives.verifying import Verification
from penstock.pipelines.lakes import delta_log
from penstock.pipelines.lakes.opening import open_table
from penstock.pipelines.specification.model import LakeFormat
from tests.unit.pipelines.archives.rig import Crash, Frame, TestArchive, crash_at, write
from tests.unit.pipelines.lakes.dying import noted_syncs

FORMATS = pytest.mark.parametrize("lake_format", list(LakeFormat), ids=str)


def rows_and_findings(root: Path) -> tuple[int, tuple[str, ...]]:
    verdict = Verification(root).run()
    return verdict.rows, verdict.findings


@FORMATS
@pytest.mark.parametrize("step", ["noted", "committed"])
def test_an_epoch_that_was_cut_off_is_there_once_after_a_restart(
    tmp_path: Path, lake_format: LakeFormat, step: str
) -> None:
    archive = TestArchive(tmp_path, lake_format)
    archive.add(archive.receipt(0, 0, 10))
    with pytest.raises(Crash):
        archive.sink(crash_at(step)).take([archive.receipt(0, 10, 20)], archive.epoch(1))
    is_committed = step == "committed"
    assert rows_and_findings(tmp_path) == (20 if is_committed else 10, ())

    sink = archive.sink()
    frame = Frame([archive.receipt(0, 10, 20)])
    written = write(sink, frame, archive.epoch(1))
    assert written.was_there is is_committed
    assert frame.collected == (0 if is_committed else 1)
    assert rows_and_findings(tmp_path) == (20, ())
    assert dict(sink.ends) == {0: 20}


def test_what_a_killed_run_committed_is_on_the_disk_before_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = TestArchive(tmp_path, LakeFormat.DELTA)
    with monkeypatch.context() as killed:
        killed.setattr(delta_log, "sync_commits", lambda root, first: first)
        with pytest.raises(Crash):
            archive.sink(crash_at("committed")).take([archive.receipt(0, 0, 10)], archive.epoch(0))
    synced = noted_syncs(monkeypatch)
    assert dict(archive.sink().ends) == {0: 10}
    assert {str(path) for path in (tmp_path / "_delta_log").glob("*.json")} <= set(synced)


def test_another_query_begins_where_the_ledger_ends_whatever_was_left_unfinished(
    tmp_path: Path,
) -> None:
    archive = TestArchive(tmp_path)
    archive.add(archive.receipt(0, 0, 10))
    with pytest.raises(Crash):
        archive.sink(crash_at("noted")).take([archive.receipt(0, 10, 20)], archive.epoch(1))
    sink = archive.sink()
    assert dict(sink.ends) == {0: 10}
    sink.take([archive.receipt(0, 10, 25)], archive.epoch(0, "query-2"))
    assert Ledger(tmp_path).numbers() == [0, 1]
    assert rows_and_findings(tmp_path) == (25, ())


@FORMATS
def test_an_archive_whose_table_is_gone_does_not_begin_anew(
    tmp_path: Path, lake_format: LakeFormat
) -> None:
    archive = TestArchive(tmp_path, lake_format).filled()
    open_table(lake_format, str(tmp_path)).drop()
    with pytest.raises(ArchiveRefused, match=r"^Epoch 1 of the archive .*, but not in its table"):
        archive.sink()
    with pytest.raises(ArchiveRefused, match=r"^Epoch 0 of the archive .*, but not in its table"):
        Archived(tmp_path)


def test_files_of_other_attempts_are_removed(tmp_path: Path) -> None:
    archive = TestArchive(tmp_path)
    attempts = [tmp_path / "data" / "query-1" / name for name in ("0-killed", "1-later")]
    for attempt in attempts:
        attempt.mkdir(parents=True)
        (attempt / "part.parquet").touch()
    archive.add(archive.receipt(0, 0, 10))
    assert [attempt.exists() for attempt in attempts] == [False, True]


def test_an_epoch_without_records_counts_without_a_table(tmp_path: Path) -> None:
    archive = TestArchive(tmp_path)
    archive.add(archive.receipt(0, 0, 10, rows=[]))
    sink = archive.sink()
    assert dict(sink.ends) == {0: 10}
    assert write(sink, Frame([]), archive.epoch(0)).was_there
    assert rows_and_findings(tmp_path) == (0, ())
    archive.add(archive.receipt(0, 10, 20))
    assert rows_and_findings(tmp_path) == (10, ())


def test_offsets_that_do_not_follow_are_refused(tmp_path: Path) -> None:
    archive = TestArchive(tmp_path)
    archive.add(archive.receipt(0, 0, 10))
    for start in (0, 12):
        with pytest.raises(ArchiveRefused, match="is archived up to offset 10"):
            archive.add(archive.receipt(0, start, 20))
    assert rows_and_findings(tmp_path) == (10, ())


def test_new_partitions_are_remembered_even_without_records(tmp_path: Path) -> None:
    archive = TestArchive(tmp_path, partitions=2)
    archive.partitions = 5
    archive.sink().note_partitions(5)
    assert archive_at(tmp_path).partitions == 5


def test_a_receipt_is_the_same_after_its_way_to_the_driver(tmp_path: Path) -> None:
    archive = TestArchive(tmp_path)
    receipt = archive.receipt(1, 5, 30, lost=(5, 7))
    assert Receipt.from_json(receipt.to_json()) == receipt
    assert receipt.lost == (Span(partition=1, start=5, stop=7),)
    assert receipt.files[0].statistics["offset"].least == 5


def test_spans_of_tasks_that_shared_a_partition_are_joined() -> None:
    parts = [(1, 0, 5), (0, 7, 9), (0, 3, 7)]
    spans = [Span(partition=one, start=start, stop=stop) for one, start, stop in parts]
    assert joined_spans(spans) == (
        Span(partition=0, start=3, stop=9),
        Span(partition=1, start=0, stop=5),
    )
    with pytest.raises(AssertionError):
        joined_spans([spans[1], Span(partition=0, start=0, stop=2)])
