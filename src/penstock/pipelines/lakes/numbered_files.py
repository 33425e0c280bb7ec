"""Numbered JSON files that fold themselves together, so that few are read however many there were.

Each number is a file of its own at first. Whole hundreds of them are folded into one file, and
whole hundreds of those into a larger one. A folded file is on the disk under its name before what
it repeats is removed, and it wins over whatever file of one number is beside it. So a crash at
any point changes nothing of what is read.

A reader that does not find a file looks for the folded one. A number that is folded can't be made
again, by a writer that slept meanwhile: anyone who makes a file looks for a folded one afterwards.
"""

import contextlib
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.pipelines.lakes.durable_files import create_exclusively, replace_file

# How many numbers are in a folded file, of each size.
SIZES = (100, 10_000)
# As many of the last numbers stay files of their own, which are quick to read.
KEPT = 10
# A folder from before there was folding is not folded all at once.
FOLDS_MAX = 100
# A file may be folded in the moment in which it is looked for, and that one folded again.
_ATTEMPTS_MAX = 10
_DIGITS = 20
_SINGLE = re.compile(r"(\d+)\.json", re.ASCII)
_FOLDED = re.compile(r"(\d+)-(\d+)\.jsonl\.gz", re.ASCII)


class FileDamaged(Exception):
    """A file is there and can't be read; `numbers` are those that it holds."""

    def __init__(self, path: Path, reason: str, numbers: range) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
        self.numbers = numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A file of one number or of many, with the text of each."""

    path: Path
    numbers: range
    texts: Sequence[bytes]

    def content(self, number: int) -> dict[str, Any]:
        try:
            content = json.loads(self.texts[number - self.numbers.start])
        except ValueError:
            raise FileDamaged(self.path, "it is not JSON", self.numbers) from None
        if not isinstance(content, dict):
            raise FileDamaged(self.path, "it does not hold a JSON object", self.numbers)
        return content


class NumberedFiles:
    """Those of one folder, which need not be there yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, number: int) -> Path:
        """Of a number that is not folded."""
        return self._folder / f"{number:0{_DIGITS}d}.json"

    def place(self, number: int) -> Path:
        """The file that a number is read from now."""
        group = self._folded_over(number)
        return self.path(number) if group is None else self._folded_path(group)

    def numbers(self) -> list[int]:
        """All that there are, ascending.

        A listing that is made while files are folded may have neither the old nor the new ones; the
        next one has.
        """
        numbers, before = self._listed(), None
        while numbers and len(numbers) != numbers[-1] + 1 and numbers != before:
            numbers, before = self._listed(), numbers
        return numbers

    def last(self, known: int | None = None) -> int:
        """The greatest number, -1 if there is none; quick from a `known` one that is there."""
        number = known
        for _ in range(_ATTEMPTS_MAX):
            if number is None:
                number = max(self._listed(), default=-1)
            while self.path(number + 1).exists():
                number += 1
            if self._folded_over(number + 1) is None:
                return number
            number = None
        raise AssertionError(f"{self._folder} changes faster than it can be listed")

    def holds(self, number: int) -> bool:
        return self.path(number).exists() or self._folded_over(number) is not None

    def read(self, number: int) -> dict[str, Any]:
        """Raises FileNotFoundError or FileDamaged."""
        return self._piece(number).content(number)

    def read_all(
        self, numbers: Sequence[int], damaged: Callable[[FileDamaged], None] | None = None
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Of numbers that ascend; what `damaged` is told of is left out instead of raised."""
        at = 0
        while at < len(numbers):
            try:
                piece = self._piece(numbers[at])
                while at < len(numbers) and numbers[at] in piece.numbers:
                    yield numbers[at], piece.content(numbers[at])
                    at += 1
            except FileDamaged as damage:
                if damaged is None:
                    raise
                damaged(damage)
                while at < len(numbers) and numbers[at] in damage.numbers:
                    at += 1

    def create(self, number: int, content: bytes) -> bool:
        """Make the file of a number, once and for all; False if there is one already."""
        if self._folded_over(number) is not None:
            return False
        if not create_exclusively(self.path(number), content):
            return False
        if self._folded_over(number) is not None:
            # The number was taken, and its file is gone only because it was folded.
            self.path(number).unlink(missing_ok=True)
            return False
        return True

    def put(self, number: int, content: bytes) -> None:
        """Make or replace the file of one of the last numbers; for a folder with one writer."""
        replace_file(self.path(number), content)

    def fold_behind(self, number: int) -> None:
        """To be called after each new number; what can't be done now is done a hundred later."""
        if number % SIZES[0] == KEPT:
            with contextlib.suppress(OSError, FileDamaged):
                self.fold(number - KEPT)

    def fold(self, below: int) -> None:
        """Fold what is whole below a number, and remove what a crash has left beside its fold."""
        self._remove_covered()
        smaller = 1
        for size in SIZES:
            for first in self._whole(size, smaller, below)[:FOLDS_MAX]:
                group = range(first, first + size)
                texts = [_text(content) for _, content in self.read_all(group)]
                replace_file(self._folded_path(group), gzip.compress(b"\n".join(texts), mtime=0))
            self._remove_covered()
            smaller = size

    def _whole(self, size: int, smaller: int, below: int) -> list[int]:
        """First numbers of groups of which all files of the next smaller size are there."""
        parts = Counter(each.start // size for each in self._ranges() if len(each) == smaller)
        return [
            place * size
            for place, count in sorted(parts.items())
            if count * smaller == size and (place + 1) * size <= below
        ]

    def _remove_covered(self) -> None:
        """Remove what is in a larger file too, after a look whether that one can be read."""
        ranges = self._ranges()
        for size in SIZES:
            smaller = [each for each in ranges if len(each) < size]
            for group in (each for each in ranges if len(each) == size):
                covered = [each for each in smaller if each.start in group]
                if covered:
                    self._piece(group.start)
                for each in covered:
                    self._path_of(each).unlink(missing_ok=True)

    def _piece(self, number: int) -> _Piece:
        """The file is read first: only after its fold is there can it be gone, or be wrong."""
        for _ in range(_ATTEMPTS_MAX):
            single = _read(self.path(number))
            group = self._folded_over(number)
            if group is None:
                if single is None:
                    break
                alone = range(number, number + 1)
                return _Piece(path=self.path(number), numbers=alone, texts=[single])
            path = self._folded_path(group)
            folded = _read(path)
            if folded is not None:
                return _Piece(path=path, numbers=group, texts=_texts(path, folded, group))
        raise FileNotFoundError(f"{self.path(number)} is not there")

    def _folded_over(self, number: int) -> range | None:
        """Smaller ones are looked for first: they are gone only after the larger one is there."""
        found = None
        for size in SIZES:
            first = number // size * size
            group = range(first, first + size)
            if self._folded_path(group).exists():
                found = group
        return found

    def _folded_path(self, group: range) -> Path:
        name = f"{group.start:0{_DIGITS}d}-{group.stop - 1:0{_DIGITS}d}.jsonl.gz"
        return self._folder / name

    def _path_of(self, numbers: range) -> Path:
        return self.path(numbers.start) if len(numbers) == 1 else self._folded_path(numbers)

    def _listed(self) -> list[int]:
        return sorted({number for each in self._ranges() for number in each})

    def _ranges(self) -> list[range]:
        """What each file holds, by its name."""
        if not self._folder.exists():
            return []
        # Drafts, which a killed process leaves, begin with a dot.
        names = (path.name for path in self._folder.iterdir())
        return [each for name in names if (each := _range_of(name)) is not None]


def _range_of(name: str) -> range | None:
    if single := _SINGLE.fullmatch(name):
        return range(int(single[1]), int(single[1]) + 1)
    if folded := _FOLDED.fullmatch(name):
        return range(int(folded[1]), int(folded[2]) + 1)
    return None


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _texts(path: Path, folded: bytes, numbers: range) -> list[bytes]:
    """One line for each number; the checksum inside tells of every change."""
    try:
        texts = gzip.decompress(folded).split(b"\n")
    except (OSError, EOFError, zlib.error):
        raise FileDamaged(path, "its checksum is wrong", numbers) from None
    if len(texts) != len(numbers):
        raise FileDamaged(path, "it does not hold what its name says", numbers)
    return texts


def _text(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
