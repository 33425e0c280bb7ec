"""Takes the values of a map by name, checks their types, and finds names that are unknown."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

from penstock.pipelines.specification.context import Context, nearest_or_known
from penstock.pipelines.specification.problems import Place
from penstock.pipelines.specification.tree import Entries, Items, Node, Scalar, plain_value
from penstock.spark.options.misspelt import nearest

Choice = TypeVar("Choice", bound=StrEnum)


class Fields:
    """The fields of one thing, such as "the source readings".

    A field that is wrong is reported to the context and has a value that does no harm, so that the
    fields after it are read too.
    """

    def __init__(
        self,
        node: Node,
        context: Context,
        *,
        owner: str,
        known: Sequence[str],
        place: Place | None = None,
        is_option: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """`place` is where what is missing is reported; `is_option` knows what belongs to"
        " `options`."""
        self._context = context
        self._owner = owner
        self.place = place or node.place
        entries = entries_of(node, context, owner=owner)
        self._entries = corrected(entries, context, owner=owner, known=known, is_option=is_option)

    def has(self, name: str) -> bool:
        node = self._entries.find(name)
        return node is not None and not (isinstance(node, Scalar) and node.is_null)

    def names(self) -> list[str]:
        return [key.text for key, _ in self._entries.entries]

    def key_place(self, name: str) -> Place:
        key = self._entries.key(name)
        return self.place if key is None else key.place

    def node(self, name: str) -> Node | None:
        return self._entries.find(name) if self.has(name) else None

    def scalar(self, name: str) -> Scalar | None:
        """A text with its place; None if it is missing or no text."""
        node = self.node(name)
        if node is None or isinstance(node, Scalar):
            return None if node is None else self._context.filled(node)
        self._wrong(name, node, "a text")
        return None

    def needed(self, name: str) -> Scalar | None:
        if not self.has(name):
            self._context.problem(self.place, f"The key {name} is missing in {self._owner}.")
            return None
        found = self.scalar(name)
        if found is not None and not found.text.strip() and not self._is_unfilled(name):
            self._wrong(name, found, "a text")
        return found

    def needed_as_written(self, name: str) -> Scalar | None:
        """A text with the lines that it has in the file, for a language that ignores them."""
        found, node = self.needed(name), self.node(name)
        if found is None or not isinstance(node, Scalar) or node.written is None:
            return found
        return self._context.filled(node.written)

    def text(self, name: str, default: str = "") -> str:
        found = self.scalar(name)
        return default if found is None else found.text

    def text_or_none(self, name: str) -> str | None:
        found = self.scalar(name)
        return None if found is None else found.text

    def needed_text(self, name: str) -> str:
        found = self.needed(name)
        return "" if found is None else found.text

    def text_place(self, name: str) -> Place:
        """Where the first character of a text stands."""
        node = self._entries.find(name)
        if node is None:
            return self.place
        return node.text_place if isinstance(node, Scalar) else node.place

    def flag(self, name: str, default: bool) -> bool:
        found = self.scalar(name)
        if found is None or self._is_unfilled(name):
            return default
        value = plain_value(found.text)
        if not isinstance(value, bool):
            self._wrong(name, found, "true or false")
            return default
        return value

    def whole_number(self, name: str, default: int, *, least: int = 0) -> int:
        found = self.scalar(name)
        if found is None or self._is_unfilled(name):
            return default
        value = plain_value(found.text)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            self._wrong(name, found, f"a whole number of at least {least}")
            return default
        return value

    def choice(self, name: str, choices: type[Choice], default: Choice) -> Choice:
        found = self.scalar(name)
        if found is None or self._is_unfilled(name):
            return default
        words = [one.value for one in choices]
        if found.text not in words:
            self._wrong(name, found, listed(words))
            return default
        return choices(found.text)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; a single one may stand without brackets."""
        return tuple(found.text for found in self.scalars(name))

    def scalars(self, name: str) -> list[Scalar]:
        node = self.node(name)
        if node is None:
            return []
        if isinstance(node, Entries):
            self._wrong(name, node, "a list of strings")
            return []
        found = []
        for item in node.items if isinstance(node, Items) else (node,):
            if isinstance(item, Scalar) and not item.is_null:
                found.append(self._context.filled(item))
            else:
                said = f"The key {name} in {self._owner} must be a list of strings"
                self._context.problem(item.place, f"{said}, but holds {shown(item)}.")
        return found

    def pairs(self, name: str) -> dict[str, str]:
        """A map of texts, such as options."""
        return {key.text: value.text for key, value in self.scalar_pairs(name)}

    def scalar_pairs(self, name: str) -> Iterator[tuple[Scalar, Scalar]]:
        for key, node in self.entries(name):
            if isinstance(node, Scalar) and not node.is_null:
                yield key, self._context.filled(node)
            else:
                said = f"The value of {key.text} in {self._owner} must be text or a number."
                self._context.problem(node.place, said)

    def entries(self, name: str) -> tuple[tuple[Scalar, Node], ...]:
        """A map; empty when the key is missing."""
        node = self.node(name)
        if node is None:
            return ()
        return entries_of(node, self._context, owner=f"the key {name} in {self._owner}").entries

    def items(self, name: str) -> tuple[Node, ...]:
        node = self.node(name)
        if node is None:
            return ()
        if not isinstance(node, Items):
            self._wrong(name, node, "a list")
            return ()
        return node.items

    def lacks_values(self) -> bool:
        """Whether some text here can't be judged, since a parameter in it has no value."""
        nodes = [node for _, node in self._entries.entries]
        inner = [node for one in nodes if isinstance(one, Entries) for _, node in one.entries]
        inner += [node for one in nodes if isinstance(one, Items) for node in one.items]
        scalars = [node for node in (*nodes, *inner) if isinstance(node, Scalar)]
        return any(self._context.lacks_value(scalar) for scalar in scalars)

    def _is_unfilled(self, name: str) -> bool:
        node = self._entries.find(name)
        return isinstance(node, Scalar) and self._context.lacks_value(node)

    def _wrong(self, name: str, node: Node, wanted: str) -> None:
        said = f"The key {name} in {self._owner} must be {wanted}, not {shown(node)}."
        self._context.problem(node.place, said)


def corrected(
    entries: Entries,
    context: Context,
    *,
    owner: str,
    known: Sequence[str],
    is_option: Callable[[str], bool] = lambda name: False,
) -> Entries:
    """Tells of unknown keys; a misspelt one is then taken for the one that was probably meant.

    So its value is checked too, and nobody is told that the right key is missing.
    """
    present = {key.text for key, _ in entries.entries}
    found = []
    for key, node in entries.entries:
        if key.text in known:
            found.append((key, node))
            continue
        hint = f"; put it under options: {{{key.text}: ...}}" if is_option(key.text) else ""
        hint = hint or nearest_or_known(key.text, known)
        context.problem(key.place, f"The key {key.text} is unknown in {owner}{hint}.")
        meant = nearest(key.text, known)
        if meant is not None and meant not in present:
            present.add(meant)
            found.append((replace(key, text=meant), node))
    return replace(entries, entries=tuple(found))


def kind_of(
    entries: Entries, kinds: Mapping[str, Sequence[str]], context: Context, *, either: str
) -> str | None:
    """Which of some keys says what this is; None when none does, or after two were reported.

    `either` is the beginning of the sentence about two, as in "The source a reads".
    """
    found = [key for key, _ in entries.entries if key.text in kinds]
    if len(found) > 1:
        said = f"{either} either {found[0].text} or {found[1].text}, not both."
        context.problem(found[1].place, said)
        return None
    return found[0].text if found else None


def every_key(kinds: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The keys of all kinds, each once."""
    return tuple(dict.fromkeys((*kinds, *(key for keys in kinds.values() for key in keys))))


def listed(words: Sequence[str]) -> str:
    """Words as in "topic, table or archive"."""
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def entries_of(node: Node, context: Context, *, owner: str) -> Entries:
    """A map, empty after a problem was reported if it is not one."""
    if isinstance(node, Entries):
        return node
    if not (isinstance(node, Scalar) and node.is_null):
        sentence = f"{owner[0].upper()}{owner[1:]} must be a map of keys and values"
        context.problem(node.place, f"{sentence}, not {shown(node)}.")
    return Entries(entries=(), place=node.place)


def shown(node: Node) -> str:
    """A value inside a sentence."""
    if isinstance(node, Entries):
        return "a map"
    if isinstance(node, Items):
        return "a list"
    if node.is_null:
        return "nothing"
    text = " ".join(node.text.split())
    return f'"{text[:_TEXT_SHOWN_MAX]}..."' if len(text) > _TEXT_SHOWN_MAX else f'"{text}"'


_TEXT_SHOWN_MAX = 60
