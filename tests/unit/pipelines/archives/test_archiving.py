"""Proves that an archive goes on only with what it began with, and from where its ledger ends."""

import dataclasses
import json
from pathlib import Path

import pytest

from penstock.pipelines.archives.archiving import Wanted, checkpoint_fits, described
from penstock.pipelines.archives.description import (
    archive_at,
    description_path,
    read_description,
    write_description,
)
from penstock.pipelines.archives.ledger import Entry
from penstock.pipelines.archives.locking import only_one
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.archives.topic_facts import TopicFacts
from penstock.pipelines.specification.model import LakeFormat
from tests.unit.pipelines.archives.rig import TestArchive

FACTS = TopicFacts(
    name="readings",
    topic_id="id-1",
    partitions=3,
    settings={"max.message.bytes": "5", "retention.ms": "7"},
    own_settings={"max.message.bytes": "5", "retention.ms": "7"},
)


def wanted(root: Path, **given: object) -> Wanted:
    return Wanted(root=root, bootstrap="unused:1", **given)  # type: ignore[arg-type]


def test_an_archive_is_described_when_it_begins(tmp_path: Path) -> None:
    assert read_description(tmp_path) is None
    begun = described(wanted(tmp_path, format=LakeFormat.DELTA, is_by_date=True), FACTS)
    assert begun == archive_at(tmp_path)
    assert begun.partition_by == ("partition", "date")
    # How long records are kept is the target's own business.
    assert begun.settings == {"max.message.bytes": "5"}
    assert described(wanted(tmp_path), FACTS) == begun
    assert described(wanted(tmp_path, format=LakeFormat.DELTA), FACTS) == begun


@pytest.mark.parametrize(
    ("changed", "given", "words"),
    [
        ({"name": "other"}, {}, "is that of topic readings, not of topic other"),
        ({"topic_id": "id-2"}, {}, "was deleted and created again"),
        ({}, {"format": LakeFormat.ICEBERG}, "was started with another format \\(parquet\\)"),
        ({}, {"is_by_date": True}, "was started with another choice of --by-date"),
        ({}, {"options": {"catalog": "c"}}, "was started with other options"),
    ],
)
def test_what_does_not_fit_an_archive_is_refused(
    tmp_path: Path, changed: dict[str, str], given: dict[str, object], words: str
) -> None:
    described(wanted(tmp_path), FACTS)
    with pytest.raises(ArchiveRefused, match=words) as caught:
        described(wanted(tmp_path, **given), dataclasses.replace(FACTS, **changed))
    assert str(caught.value).endswith(".")


def test_a_description_of_another_layout_or_none_is_refused(tmp_path: Path) -> None:
    archive = TestArchive(tmp_path)
    write_description(tmp_path, archive.description)
    path = description_path(tmp_path)
    content = json.loads(path.read_text())
    for harmed, words in (({"layout": 9}, "another version"), ({"format": "x"}, "is damaged")):
        path.write_text(json.dumps(content | harmed))
        with pytest.raises(ArchiveRefused, match=words):
            archive_at(tmp_path)


def last(batch: int) -> Entry:
    return Entry(
        number=9, query="query-1", batch=batch, partitions=1, spans=(), files=(), ends={0: 1}
    )


def make_checkpoint(folder: Path, query: str, committed: int | None) -> Path:
    checkpoint = folder / f"checkpoint-{query}-{committed}"
    (checkpoint / "commits").mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": query}))
    for batch in range(0 if committed is None else committed + 1):
        (checkpoint / "commits" / str(batch)).touch()
    return checkpoint


def test_only_a_checkpoint_that_agrees_with_the_ledger_is_used(tmp_path: Path) -> None:
    def fits(committed: int | None, entry: Entry | None, query: str = "query-1") -> bool:
        folder = tmp_path / f"{id(entry)}-{committed}-{query}"
        return checkpoint_fits(make_checkpoint(folder, query, committed), entry)

    assert checkpoint_fits(tmp_path / "nowhere", last(3))
    assert fits(3, last(3))
    # The process was killed after the table's commit, or during the first epoch.
    assert fits(2, last(3))
    assert fits(None, last(0))
    assert fits(None, None)
    # It is older or newer than what was archived, or another archive's.
    assert not fits(1, last(3))
    assert not fits(4, last(3))
    assert not fits(0, None)
    assert not fits(3, last(3), "query-2")


def test_two_processes_do_not_write_one_archive(tmp_path: Path) -> None:
    with (
        only_one(tmp_path / "lock", "Taken."),
        pytest.raises(ArchiveRefused, match=r"Taken\."),
        only_one(tmp_path / "lock", "Taken."),
    ):
        pass
    with only_one(tmp_path / "lock", "Taken."):
        pass
