"""Proves that an archive that lost anything, or was altered, is told from one that is complete."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.pipelines.archives.ledger import ArchivedFile, Ledger, Span
from penstock.pipelines.archives.online import compare_with_topic
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.archives.topic_facts import TopicFacts
from penstock.pipelines.archives.verifying import Verification
from penstock.pipelines.lakes.opening import open_table
from penstock.pipelines.specification.model import LakeFormat
from tests.unit.pipelines.archives.rig import (
    TOPIC,
    TOPIC_ID,
    Crash,
    Record,
    TestArchive,
    crash_at,
)

FORMATS = pytest.mark.parametrize("lake_format", list(LakeFormat), ids=str)


def findings(root: Path) -> list[str]:
    return list(Verification(root).run().findings)


def a_file(root: Path) -> ArchivedFile:
    return Ledger(root).entry(1).files[0]


@FORMATS
def test_a_complete_archive_has_no_findings(tmp_path: Path, lake_format: LakeFormat) -> None:
    TestArchive(tmp_path, lake_format).filled()
    seen: list[int] = []
    verification = Verification(tmp_path)
    verdict = verification.run(seen.append)
    assert verdict.findings == ()
    assert (verdict.epochs, verdict.files, verdict.rows) == (3, 4, 40)
    assert verdict.spans == (
        Span(partition=0, start=0, stop=30),
        Span(partition=1, start=5, stop=15),
    )
    assert sum(seen) == verification.size == verdict.size > 0


@FORMATS
def test_a_table_that_is_gone_is_not_taken_for_epochs_that_are_being_written(
    tmp_path: Path, lake_format: LakeFormat
) -> None:
    TestArchive(tmp_path, lake_format).filled()
    open_table(lake_format, str(tmp_path)).drop()
    # Without Spark's own notes, the last epoch may be one whose process was killed.
    assert findings(tmp_path) == ["Epoch 0 is not in the table.", "Epoch 1 is not in the table."]


def removed(path: Path) -> None:
    path.unlink()


def altered(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


@FORMATS
@pytest.mark.parametrize(
    ("harm", "words"),
    [(removed, "is missing"), (altered, "was altered"), (cut, "bytes instead of")],
)
def test_a_harmed_file_is_named(
    tmp_path: Path, lake_format: LakeFormat, harm: Callable[[Path], None], words: str
) -> None:
    TestArchive(tmp_path, lake_format).filled()
    file = a_file(tmp_path)
    harm(tmp_path / file.path)
    assert [words in finding and file.path in finding for finding in findings(tmp_path)] == [True]


def test_a_file_that_was_replaced_by_another_valid_one_is_named(tmp_path: Path) -> None:
    TestArchive(tmp_path).filled()
    first, second = (Ledger(tmp_path).entry(number).files[0] for number in (0, 2))
    (tmp_path / first.path).write_bytes((tmp_path / second.path).read_bytes())
    assert any(first.path in finding for finding in findings(tmp_path))


@FORMATS
def test_a_missing_epoch_is_named(tmp_path: Path, lake_format: LakeFormat) -> None:
    TestArchive(tmp_path, lake_format).filled()
    Ledger(tmp_path).path(1).unlink()
    found = findings(tmp_path)
    assert "Epoch 1 is missing from the ledger." in found
    assert "Partition 0: offsets 10 to 19 are missing before epoch 2." in found
    assert sum("is part of the table, but not of the ledger" in finding for finding in found) == 2


def test_the_last_epoch_is_missed_as_well(tmp_path: Path) -> None:
    TestArchive(tmp_path).filled()
    Ledger(tmp_path).path(2).unlink()
    (finding,) = findings(tmp_path)
    assert finding.endswith("is part of the table, but not of the ledger.")


def test_an_epoch_that_the_table_lost_is_missed(tmp_path: Path) -> None:
    archive = TestArchive(tmp_path).filled()
    manifests = sorted((tmp_path / "_manifest").glob("*.json"))
    # Spark had noted the epoch, so that it is not one whose process was killed before the commit.
    commits = tmp_path / "_archive" / "checkpoint" / "commits"
    commits.mkdir(parents=True)
    (commits / "2").touch()
    (commits.parent / "metadata").write_text(json.dumps({"id": archive.epoch(0).query}))
    manifests[-1].unlink()
    (tmp_path / "_manifest" / "latest").unlink()
    assert findings(tmp_path) == ["Epoch 2 is not in the table."]


def test_an_epoch_that_is_being_written_is_no_finding(tmp_path: Path) -> None:
    archive = TestArchive(tmp_path).filled()
    with pytest.raises(Crash):
        archive.sink(crash_at("noted")).take([archive.receipt(0, 30, 40)], archive.epoch(3))
    verdict = Verification(tmp_path).run()
    assert verdict.findings == ()
    assert verdict.rows == 40


def test_a_damaged_ledger_is_named(tmp_path: Path) -> None:
    TestArchive(tmp_path).filled()
    Ledger(tmp_path).path(1).write_text('{"batch": 1')
    assert any("is damaged: it is not JSON" in finding for finding in findings(tmp_path))
    Ledger(tmp_path).path(1).write_text('{"batch": 1}')
    assert any("it does not describe an epoch" in finding for finding in findings(tmp_path))


def test_offsets_that_a_ledger_has_twice_are_named(tmp_path: Path) -> None:
    archive = TestArchive(tmp_path).filled()
    ledger = Ledger(tmp_path)
    content = json.loads(ledger.path(2).read_text())
    content["spans"] = [[0, 15, 30]]
    ledger.path(2).write_text(json.dumps(content))
    assert findings(archive.root) == [
        "Partition 0: offsets from 15 on are there twice before epoch 2."
    ]


def test_records_that_were_lost_are_named(tmp_path: Path) -> None:
    archive = TestArchive(tmp_path)
    rows = [Record(offset) for offset in range(15, 20)]
    archive.add(archive.receipt(0, 0, 20, rows=rows, lost=(0, 15)))
    assert findings(tmp_path) == [
        "Partition 0: offsets 0 to 14 were deleted from the topic before they could be archived."
    ]


def test_gaps_inside_an_epoch_are_the_topics_own(tmp_path: Path) -> None:
    archive = TestArchive(tmp_path)
    archive.add(archive.receipt(0, 0, 100, rows=[Record(offset) for offset in (3, 40, 99)]))
    assert findings(tmp_path) == []


@FORMATS
def test_an_archive_by_date_is_complete_though_its_files_overlap(
    tmp_path: Path, lake_format: LakeFormat
) -> None:
    archive = TestArchive(tmp_path, lake_format, is_by_date=True)
    day = 86_400
    rows = [Record(offset, seconds=(offset % 3) * day) for offset in range(30)]
    entry = archive.add(archive.receipt(0, 0, 30, rows=rows))
    assert len(entry.files) == 3
    assert findings(tmp_path) == []


def test_a_folder_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveRefused, match="There is no archive in"):
        Verification(tmp_path)


def facts(topic_id: str = TOPIC_ID, partitions: int = 2) -> TopicFacts:
    return TopicFacts(
        name=TOPIC, topic_id=topic_id, partitions=partitions, settings={}, own_settings={}
    )


def test_an_archive_is_compared_with_its_topic(tmp_path: Path) -> None:
    TestArchive(tmp_path).filled()
    verdict = Verification(tmp_path).run()

    def compared(topic: TopicFacts, *offsets: tuple[int, int]) -> list[str]:
        return list(compare_with_topic(verdict, topic, dict(enumerate(offsets))))

    assert compared(facts(), (0, 30), (5, 15)) == []
    # Retention has removed records that are archived.
    assert compared(facts(), (20, 30), (15, 15)) == []
    assert compared(facts(), (0, 33), (2, 15)) == [
        "Partition 0: the topic goes up to offset 32, but the archive ends before offset 30.",
        "Partition 1: the topic starts at offset 2, but the archive only at offset 5.",
    ]
    assert compared(facts(), (0, 7), (5, 15)) == [
        "Partition 0: the archive goes up to offset 29, but the topic does not."
    ]
    assert compared(facts(partitions=3), (0, 30), (5, 15), (0, 1)) == [
        "Topic readings has 3 partitions, the archive 2.",
        "Partition 2: the topic goes up to offset 0, but the archive ends before offset 0.",
    ]
    assert compared(facts(topic_id="another")) == [
        "Topic readings was deleted and created again after the archive was started."
    ]
