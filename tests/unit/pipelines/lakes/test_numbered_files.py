"""Folding numbered files together changes nothing of what is read, wherever it is cut short."""

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.lakes import numbered_files
from penstock.pipelines.lakes.numbered_files import KEPT, FileDamaged, NumberedFiles
from tests.unit.pipelines.lakes.dying import Crash, dying_at, without_waiting

# Small enough that a few dozen files reach the larger size too.
SMALL, LARGE = 4, 16


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_files, "SIZES", (SMALL, LARGE))
    without_waiting(monkeypatch)


def text(number: int) -> bytes:
    return json.dumps({"number": number, "text": "a\nb", "nested": {"x": [1.5, None]}}).encode()


def filled(folder: Path, count: int) -> NumberedFiles:
    """As from before there was folding."""
    folder.mkdir(exist_ok=True)
    files = NumberedFiles(folder)
    for number in range(count):
        files.path(number).write_bytes(text(number))
    return files


def contents(folder: Path, count: int) -> None:
    """What everybody who opens the folder now must find."""
    files = NumberedFiles(folder)
    assert files.numbers() == list(range(count))
    assert files.last() == count - 1
    found = list(files.read_all(range(count)))
    assert found == [(number, json.loads(text(number))) for number in range(count)]
    assert [files.read(number)["number"] for number in range(count)] == list(range(count))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_folding_leaves_few_files_and_all_contents(small: None, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    filled(folder, 39).fold(39)
    assert names(folder) == [
        "00000000000000000000-00000000000000000015.jsonl.gz",
        "00000000000000000016-00000000000000000031.jsonl.gz",
        "00000000000000000032-00000000000000000035.jsonl.gz",
        *(f"{number:020d}.json" for number in (36, 37, 38)),
    ]
    contents(folder, 39)
    NumberedFiles(folder).fold(39)
    assert len(names(folder)) == 6, "there is nothing more to fold"


def test_a_crash_at_any_point_changes_nothing_and_is_made_up_for(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = 0
    for change in range(1_000):
        folder = tmp_path / f"{change}"
        files = filled(folder, 19)
        try:
            with dying_at(monkeypatch, change):
                files.fold(19)
            break
        except Crash:
            points += 1
        contents(folder, 19)
        again = NumberedFiles(folder)
        assert again.create(19, text(19))
        again.fold(19)
        contents(folder, 20)
        assert len(names(folder)) == 1 + 4, "nothing is left of what was folded"
    # Four small files and a large one, each written, synced, named and synced, and 20 removed.
    assert points >= (5 * 3 + 20)


def test_nothing_is_removed_before_its_fold_is_durable(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = filled(tmp_path / "files", 5)
    done: list[str] = []

    def noted(name: str) -> Callable[..., object]:
        real = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> object:
            done.append(name)
            return real(*arguments, **named)

        return call

    for name in ("fsync", "replace", "unlink"):
        monkeypatch.setattr(os, name, noted(name))
    files.fold(5)
    # The content, the name, the folder's knowledge of the name, and only then the old files.
    assert done == ["fsync", "replace", "fsync", *["unlink"] * SMALL]


def test_nothing_is_removed_for_a_fold_that_can_not_be_read(small: None, tmp_path: Path) -> None:
    files = filled(tmp_path / "files", 5)
    files.fold(5)
    files.path(2).write_bytes(text(2))
    files.place(2).write_bytes(b"")
    with pytest.raises(FileDamaged):
        files.fold(5)
    assert files.path(2).read_bytes() == text(2)


def test_the_last_numbers_stay_and_folding_comes_once_in_a_while(tmp_path: Path) -> None:
    files = filled(tmp_path / "files", 100 + KEPT + 1)
    folded: list[int] = []
    for number in range(100 + KEPT + 1):
        files.fold_behind(number)
        folded += [number] if (tmp_path / "files" / FIRST_HUNDRED).exists() else []
    assert folded == [100 + KEPT]
    assert len(names(tmp_path / "files")) == 1 + KEPT + 1
    contents(tmp_path / "files", 100 + KEPT + 1)


FIRST_HUNDRED = f"{0:020d}-{99:020d}.jsonl.gz"


def test_a_folder_from_before_is_folded_in_steps(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbered_files, "FOLDS_MAX", 2)
    files = filled(tmp_path / "files", 16)
    left = []
    for _ in range(4):
        files.fold(16)
        left.append(len(names(tmp_path / "files")))
        contents(tmp_path / "files", 16)
    assert left == [10, 1, 1, 1]


def test_a_writer_that_slept_does_not_take_a_number_again(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It found the number free, and anyone who took it has folded it since."""
    folder = tmp_path / "files"
    files = filled(folder, 3)
    real = numbered_files.create_exclusively

    def slept(path: Path, content: bytes) -> bool:
        with monkeypatch.context() as awake:
            awake.setattr(numbered_files, "create_exclusively", real)
            for number in range(3, 9):
                assert NumberedFiles(folder).create(number, text(number))
            NumberedFiles(folder).fold(9)
        return real(path, content)

    monkeypatch.setattr(numbered_files, "create_exclusively", slept)
    assert files.create(3, b'{"number": "doubled"}') is False
    contents(folder, 9)
    assert not files.path(3).exists()
    assert files.create(3, b'{"number": "doubled"}') is False, "nor now that it is known"


def test_what_a_dead_writer_left_at_a_folded_number_is_never_read(
    small: None, tmp_path: Path
) -> None:
    files = filled(tmp_path / "files", 6)
    files.fold(6)
    files.path(2).write_bytes(b'{"number": "of the dead"}')
    contents(tmp_path / "files", 6)
    files.fold(6)
    assert not files.path(2).exists()


def test_a_reader_that_listed_before_finds_what_was_folded_meanwhile(
    small: None, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    files = filled(folder, 39)
    numbers = files.numbers()
    reading = files.read_all(numbers)
    found = [next(reading)]
    NumberedFiles(folder).fold(10)
    found += [next(reading) for _ in range(5)]
    NumberedFiles(folder).fold(39)
    found += list(reading)
    assert found == [(number, json.loads(text(number))) for number in range(39)]


def test_a_listing_in_the_midst_of_folding_is_made_again(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "files"
    files = filled(folder, 9)
    real = Path.iterdir
    is_first = True

    def torn(path: Path) -> Iterator[Path]:
        """The folder is read in two parts, and all is folded between them."""
        nonlocal is_first
        if not is_first:
            return real(path)
        is_first = False
        before = sorted(real(path))
        NumberedFiles(folder).fold(9)
        return iter([each for each in before if each.exists()])

    monkeypatch.setattr(Path, "iterdir", torn)
    assert files.numbers() == list(range(9))


def test_a_gap_stays_a_gap(small: None, tmp_path: Path) -> None:
    files = filled(tmp_path / "files", 9)
    files.path(2).unlink()
    files.fold(9)
    assert files.numbers() == [0, 1, 3, 4, 5, 6, 7, 8]
    with pytest.raises(FileNotFoundError, match=r"0{19}2\.json is not there"):
        files.read(2)


def test_the_end_is_found_from_any_number_that_was_ever_the_last(
    small: None, tmp_path: Path
) -> None:
    files = filled(tmp_path / "files", 39)
    files.fold(39)
    assert {files.last(known) for known in range(39)} == {38}
    assert files.last(None) == 38
    assert NumberedFiles(tmp_path / "none").last() == -1


@pytest.mark.parametrize("damage", ["shortened", "changed", "emptied", "another"])
def test_a_damaged_fold_is_named_with_its_numbers(small: None, tmp_path: Path, damage: str) -> None:
    files = filled(tmp_path / "files", 10)
    files.fold(10)
    path = files.place(5)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    wrong = {
        "shortened": path.read_bytes()[:-3],
        "changed": bytes(content),
        "emptied": b"",
        "another": gzip.compress(b"{}"),
    }
    path.write_bytes(wrong[damage])
    with pytest.raises(FileDamaged) as raised:
        files.read(5)
    assert (raised.value.path, raised.value.numbers) == (path, range(4, 8))
    told: list[FileDamaged] = []
    found = [number for number, _ in files.read_all(range(10), told.append)]
    assert (found, len(told)) == ([0, 1, 2, 3, 8, 9], 1)
