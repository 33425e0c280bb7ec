"""A specification before it has a meaning: texts, lists and maps, each with its place."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.pipelines.specification.problems import Place

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_FLAGS = {word: word[0] in "tT" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_WHOLE_NUMBER = re.compile(r"[-+]?[0-9]+")
_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_ENDLESS = re.compile(r"[-+]?\.(inf|Inf|INF)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One text. When it was written without quotes, it may stand for a number, a flag or null."""

    text: str
    is_plain: bool = False
    is_binary: bool = False
    """Whether it is Base64 for bytes."""
    is_literal: bool = False
    """Whether each of its lines is a line of the file, indented by as much as the first."""
    place: Place
    text_place: Place
    """Where the first character of the text stands: after a quote, or a line below."""
    written: "Scalar | None" = None
    """The same with its lines as in the file, when YAML joins them to one."""

    @property
    def is_null(self) -> bool:
        return self.is_plain and self.text in _NULLS

    def place_at(self, position: int) -> Place:
        """Where the character at a position of the text stands."""
        start, before = self.text_place, self.text[:position]
        if start.line is None or start.column is None:
            return start
        if not self.is_literal:
            return replace(start, column=start.column + position)
        column = start.column + position - (before.rfind("\n") + 1)
        return replace(start, line=start.line + before.count("\n"), column=column)


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list."""

    items: tuple["Node", ...]
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Names with what belongs to each; no name occurs twice."""

    entries: tuple[tuple[Scalar, "Node"], ...]
    place: Place

    def find(self, name: str) -> "Node | None":
        return next((node for key, node in self.entries if key.text == name), None)

    def key(self, name: str) -> Scalar | None:
        return next((key for key, _ in self.entries if key.text == name), None)


Node = Scalar | Items | Entries


def plain_value(text: str) -> object:
    """What a text without quotes stands for, by the core schema of YAML 1.2.

    Unlike YAML 1.1, where `no` is false and 12:30:00 is 45000.
    """
    if text in _NULLS:
        return None
    if text in _FLAGS:
        return _FLAGS[text]
    if _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    if _ENDLESS.fullmatch(text):
        return float("-inf" if text.startswith("-") else "inf")
    return float("nan") if text in (".nan", ".NaN", ".NAN") else text


def tree_of(value: Any, place: Place) -> Node:
    """The tree of plain values of Python, which all stand at one place."""
    if isinstance(value, Mapping):
        entries = tuple(
            (_scalar(str(key), place), tree_of(node, place)) for key, node in value.items()
        )
        return Entries(entries=entries, place=place)
    if isinstance(value, list | tuple | set | frozenset):
        return Items(items=tuple(tree_of(item, place) for item in value), place=place)
    if value is None:
        return _scalar("null", place, is_plain=True)
    if isinstance(value, bool):
        return _scalar(str(value).lower(), place, is_plain=True)
    return _scalar(str(value), place, is_plain=isinstance(value, int | float))


def _scalar(text: str, place: Place, *, is_plain: bool = False) -> Scalar:
    return Scalar(text=text, is_plain=is_plain, place=place, text_place=place)
