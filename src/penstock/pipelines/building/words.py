"""Finds the wrong word in the file of a specification, near the place that is known already."""

import re
from dataclasses import replace
from pathlib import Path

from penstock.pipelines.specification.problems import Place

# A word that stands further away is most likely not the one that is meant.
LINES_MAX = 60


def place_of_word(place: Place, word: str, *, is_in_text: bool = False) -> Place:
    """Where the word is at the place or below it, as long as the block goes on; else `place`.

    Problems that come from Spark or from an option's checker name a word, but not where the user
    wrote it. The lines of a text stand as far in as its first one; those of an entry further.
    """
    lines = lines_of(place)
    if place.line is None or not word or place.line > len(lines):
        return place
    pattern = re.compile(rf"(?<![\w]){re.escape(word)}(?![\w])", re.IGNORECASE)
    start = place.line - 1
    for number in range(start, _block_end(lines, start, is_in_text)):
        first = (place.column or 1) - 1 if number == start else 0
        if match := pattern.search(lines[number], first):
            return replace(place, line=number + 1, column=match.start() + 1)
    return place


def place_in_text(place: Place, line: int, position: int, word: str) -> Place:
    """Where a word of a longer text stands; `line` counts from 1 and `position` from 0 in it.

    The text may have been folded or filled with parameters on its way from the file, so the place
    is believed only if the word is found there.
    """
    if place.line is None or place.column is None:
        return place_of_word(place, word)
    there = replace(place, line=place.line + line - 1, column=place.column + position)
    if not word or _stands_at(there, word):
        return there
    return place_of_word(place, word, is_in_text=True)


def lines_of(place: Place) -> list[str]:
    try:
        return Path(place.file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _stands_at(place: Place, word: str) -> bool:
    lines = lines_of(place)
    if place.line is None or place.column is None or place.line > len(lines):
        return False
    return lines[place.line - 1][place.column - 1 :].lower().startswith(word.lower())


def _block_end(lines: list[str], start: int, is_in_text: bool) -> int:
    """Behind the last line that belongs to what begins at `start`."""
    least = _indentation(lines[start]) + (0 if is_in_text else 1)
    end = start + 1
    while end < min(len(lines), start + LINES_MAX):
        text = lines[end].strip()
        if text and _indentation(lines[end]) < least and text[0] not in "})]":
            break
        end += 1
    return end


def _indentation(text: str) -> int:
    return len(text) - len(text.lstrip())
