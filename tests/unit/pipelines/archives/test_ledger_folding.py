"""An archive is proven complete, goes on and is brought back as before with a folded ledger."""

import shutil
from pathlib import Path

import pytest

from penstock.pipelines.archives.ledger import Entry, Ledger
from penstock.pipelines.archives.replaying import Archived
from penstock.pipelines.archives.verifying import Verdict, Verification
from penstock.pipelines.lakes import numbered_files
from penstock.pipelines.specification.model import LakeFormat
from tests.unit.pipelines.archives.rig import Crash, Frame, TestArchive, crash_at, write
from tests.unit.pipelines.lakes import dying

EPOCHS = 9
ROWS = 3
NEVER = -1


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_files, "SIZES", (2, 4))
    monkeypatch.setattr(numbered_files, "KEPT", 1)
    dying.without_waiting(monkeypatch)


def take(archive: TestArchive, number: int) -> None:
    """The epoch of that number, by a sink that knows nothing but what is in the folder."""
    # Partitions take turns.
    start = number // 2 * ROWS
    receipts = [archive.receipt(number % 2, start, start + ROWS)]
    write(archive.sink(), Frame(receipts), archive.epoch(number))


def made_before(root: Path, monkeypatch: pytest.MonkeyPatch, epochs: int) -> TestArchive:
    """An archive from before there was folding."""
    archive = TestArchive(root)
    with monkeypatch.context() as before:
        before.setattr(numbered_files, "KEPT", NEVER)
        for number in range(epochs):
            take(archive, number)
    assert len(names(root)) == epochs
    return archive


@pytest.fixture
def unfolded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestArchive:
    return made_before(tmp_path / "archive", monkeypatch, EPOCHS)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "_archive" / "epochs").glob("0*"))


def verify(root: Path) -> Verdict:
    return Verification(root).run()


def entries(root: Path) -> list[Entry]:
    return list(Ledger(root).entries())


def test_an_archive_from_before_is_folded_and_stays_the_same(unfolded: TestArchive) -> None:
    before, verdict = entries(unfolded.root), verify(unfolded.root)
    assert (verdict.epochs, verdict.rows, verdict.findings) == (EPOCHS, EPOCHS * ROWS, ())
    folder = unfolded.root / "_archive" / "epochs"
    numbered_files.NumberedFiles(folder).fold(EPOCHS)
    assert len(names(unfolded.root)) == 3
    assert entries(unfolded.root) == before
    assert Archived(unfolded.root).entries == before
    assert verify(unfolded.root) == verdict
    assert [Ledger(unfolded.root).entry(number) for number in range(EPOCHS)] == before


@pytest.mark.parametrize("lake_format", [LakeFormat.PARQUET, LakeFormat.DELTA], ids=str)
def test_a_growing_archive_keeps_few_files(tmp_path: Path, lake_format: LakeFormat) -> None:
    archive = TestArchive(tmp_path / "archive", lake_format)
    for number in range(EPOCHS + 1):
        take(archive, number)
    assert len(names(archive.root)) == 2 + 2
    verdict = verify(archive.root)
    assert (verdict.epochs, verdict.findings) == (EPOCHS + 1, ())
    # An epoch that is there is known again, however long ago it was.
    sink = archive.sink()
    for number in range(EPOCHS + 1):
        frame = Frame([])
        assert write(sink, frame, archive.epoch(number)).was_there
        assert frame.collected == 0


@pytest.mark.parametrize("step", ["noted", "committed"])
def test_an_epoch_that_was_cut_off_is_never_folded_before_it_counts(
    tmp_path: Path, step: str
) -> None:
    archive = TestArchive(tmp_path / "archive")
    for number in range(EPOCHS):
        receipts = [archive.receipt(0, number * ROWS, number * ROWS + ROWS)]
        with pytest.raises(Crash):
            archive.sink(crash_at(step)).take(receipts, archive.epoch(number))
        assert verify(archive.root).findings == ()
        receipts = [archive.receipt(0, number * ROWS, number * ROWS + ROWS)]
        written = write(archive.sink(), Frame(receipts), archive.epoch(number))
        assert written.was_there is (step == "committed")
    verdict = verify(archive.root)
    assert (verdict.epochs, verdict.rows, verdict.findings) == (EPOCHS, EPOCHS * ROWS, ())


def test_a_crash_at_any_point_of_an_epoch_that_folds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger has five files, all but the last of which are folded with the next epoch."""
    before = made_before(tmp_path / "archive", monkeypatch, 5)
    points = 0
    for change in range(1_000):
        root = tmp_path / f"{change}"
        shutil.copytree(before.root, root)
        archive = TestArchive(root)
        try:
            with dying.dying_at(monkeypatch, change):
                take(archive, 5)
            break
        except dying.Crash:
            points += 1
        verdict = verify(root)
        assert verdict.findings == (), change
        assert verdict.epochs in (5, 6)
        take(archive, 5)
        take(archive, 6)
        verdict = verify(root)
        assert (verdict.epochs, verdict.findings) == (7, ())
        shutil.rmtree(root)
    assert points > 25


def test_what_is_wrong_with_a_folded_ledger_is_found(unfolded: TestArchive) -> None:
    folder = unfolded.root / "_archive" / "epochs"
    numbered_files.NumberedFiles(folder).fold(EPOCHS)
    first, second, _ = (folder / name for name in names(unfolded.root))
    content = bytearray(second.read_bytes())
    content[20] ^= 1
    second.write_bytes(content)
    findings = verify(unfolded.root).findings
    assert findings[0] == f"The file {second} is damaged: its checksum is wrong."
    assert sum("is part of the table, but not of the ledger" in each for each in findings) == 4

    first.unlink()
    findings = verify(unfolded.root).findings
    assert "Epochs 0 to 3 are missing from the ledger." in findings
