"""Proves that the wanted rows of an archive, and only those, come back in order of offsets."""

import dataclasses
from pathlib import Path

import pytest

from penstock.pipelines.archives.archived_rows import Stretch, archived_rows, overlapping
from penstock.pipelines.archives.ledger import ArchivedFile, Span
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.archives.replaying import Archived
from penstock.pipelines.archives.selection import Selection
from penstock.pipelines.specification.model import LakeFormat
from tests.unit.pipelines.archives.rig import BEGIN, Record, TestArchive

DAY_S = 86_400
BEGIN_MS = int(BEGIN.timestamp() * 1000)


def stretch(root: Path, partition: int = 0, selection: Selection | None = None) -> Stretch:
    archived = Archived(root)
    chosen = selection or Selection()
    span = next(span for span in archived.spans(chosen) if span.partition == partition)
    return Stretch(
        root=str(root),
        partition=partition,
        files=archived.files(span),
        start=span.start,
        stop=span.stop,
        from_ms=chosen.from_ms,
        until_ms=chosen.until_ms,
    )


def offsets(wanted: Stretch) -> list[int]:
    return [row for batch in archived_rows(wanted) for row in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("lake_format", list(LakeFormat), ids=str)
def test_rows_are_those_that_were_archived(tmp_path: Path, lake_format: LakeFormat) -> None:
    archive = TestArchive(tmp_path, lake_format)
    rows = [
        Record(0, value=None, key=b"", headers=(("a", None), ("a", b""), ("b", b"1"))),
        Record(3, value=b"", key=None),
        Record(4, value=b"v", key=b"k", headers=(("", b"x"),), seconds=-5),
    ]
    archive.add(archive.receipt(1, 0, 5, rows=rows))
    (batch,) = archived_rows(stretch(tmp_path, 1))
    assert batch.to_pylist() == [
        {
            "key": row.key,
            "value": row.value,
            "headers": [{"key": name, "value": value} for name, value in row.headers] or None,
            "timestamp": row.time,
            "offset": row.offset,
        }
        for row in rows
    ]


def test_offsets_and_times_cut_what_is_read(tmp_path: Path) -> None:
    TestArchive(tmp_path).filled()

    def chosen(selection: Selection) -> tuple[int, list[int]]:
        wanted = stretch(tmp_path, 0, selection)
        return len(wanted.files), offsets(wanted)

    assert chosen(Selection()) == (3, list(range(30)))
    some = Selection(from_offset={None: 8, 0: 12}, until_offset={0: 22})
    assert chosen(some) == (2, list(range(12, 22)))
    # Records have one second each.
    times = Selection(from_ms=BEGIN_MS + 9_500, until_ms=BEGIN_MS + 21_000)
    assert chosen(times)[1] == list(range(10, 21))
    both = dataclasses.replace(times, until_offset={None: 15})
    assert chosen(both)[1] == list(range(10, 15))
    nothing = Selection(from_offset={None: 500})
    assert Archived(tmp_path).spans(nothing) == ()


def test_files_by_date_are_merged_by_offset(tmp_path: Path) -> None:
    archive = TestArchive(tmp_path, is_by_date=True)
    order = [0, 1, 0, 2, 2, 0, 1, 1, 0, 2] * 4_000
    rows = [Record(offset, seconds=day * DAY_S) for offset, day in enumerate(order)]
    entry = archive.add(archive.receipt(0, 0, len(rows), rows=rows))
    assert len(entry.files) == 3
    assert offsets(stretch(tmp_path)) == list(range(len(rows)))
    second_day = Selection(from_ms=BEGIN_MS + DAY_S * 1000, until_ms=BEGIN_MS + DAY_S * 2000)
    expected = [offset for offset, day in enumerate(order) if day == 1]
    assert offsets(stretch(tmp_path, 0, second_day)) == expected


def test_only_files_that_overlap_are_read_side_by_side() -> None:
    def file(first: int, last: int) -> ArchivedFile:
        return ArchivedFile(
            path=f"{first}", partition=0, first=first, last=last, rows=1, size=1, sha256=""
        )

    groups = overlapping([file(20, 30), file(0, 9), file(5, 12), file(12, 14), file(15, 19)])
    assert [[one.first for one in group] for group in groups] == [[0, 5, 12], [15], [20]]


def test_a_file_that_is_gone_or_broken_is_named(tmp_path: Path) -> None:
    TestArchive(tmp_path).filled()
    wanted = stretch(tmp_path)
    path = tmp_path / wanted.files[1].path
    path.write_bytes(b"no parquet")
    with pytest.raises(ArchiveRefused, match="can't be read"):
        list(archived_rows(wanted))
    path.unlink()
    with pytest.raises(ArchiveRefused, match="is missing"):
        list(archived_rows(wanted))


def test_a_selection_of_a_partition_that_is_not_there_is_refused() -> None:
    with pytest.raises(ArchiveRefused, match="there is no partition 7"):
        Selection(from_offset={7: 1}).check(3)
    span = Span(partition=1, start=10, stop=20)
    cut = Selection(from_offset={None: 30}).cut(span)
    assert cut.start == cut.stop


def test_an_archive_with_a_hole_is_not_brought_back(tmp_path: Path) -> None:
    TestArchive(tmp_path).filled()
    archived = Archived(tmp_path)
    archived.check(Selection())
    with pytest.raises(ArchiveRefused, match="there is no partition 7"):
        archived.check(Selection(until_offset={7: 1}))
    del archived.entries[1]
    with pytest.raises(ArchiveRefused, match=r"is not complete: epoch 1 is missing from"):
        archived.check(Selection())
