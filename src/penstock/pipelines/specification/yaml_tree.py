"""Reads YAML to a tree that knows where each word is, and finds keys that are given twice."""

import re
from dataclasses import dataclass, field

import yaml

from penstock.pipelines.specification.problems import Place, Problem, SpecificationRefused
from penstock.pipelines.specification.tree import Entries, Items, Node, Scalar

_STANDARD = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset(_STANDARD + name for name in ("int", "float", "bool", "null"))
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_MERGE = "<<"


class _Loader(yaml.SafeLoader):
    """Leaves each text as it is written: what it stands for is decided later."""

    yaml_implicit_resolvers = {}


def read_tree(text: str, file: str) -> tuple[Node | None, list[Problem]]:
    """The tree of a file, None when it is empty; raises SpecificationRefused if it is not YAML."""
    try:
        root = _root(text)
        maker = _Maker(file=file, lines=_LINE_BREAK.split(text))
        return (None if root is None else maker.node(root)), maker.problems
    except yaml.MarkedYAMLError as error:
        raise SpecificationRefused.at(*_syntax_problem(error, file, text)) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = Place(file, before.count("\n") + 1, error.position - before.rfind("\n"))
        sentence = f"The character {text[error.position]!r} is not allowed in YAML."
        raise SpecificationRefused.at(place, sentence) from None
    except RecursionError:
        raise SpecificationRefused.at(Place(file), "The file is nested too deeply.") from None


def _root(text: str) -> yaml.Node | None:
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _syntax_problem(error: yaml.MarkedYAMLError, file: str, text: str) -> tuple[Place, str]:
    mark = error.problem_mark or error.context_mark
    parts = [part for part in (error.context, error.problem) if part]
    said = f"This is not valid YAML: {', '.join(parts)}."
    if mark is None:
        return Place(file), said
    lines = _LINE_BREAK.split(text)
    line = lines[mark.line] if mark.line < len(lines) else ""
    if line[mark.column - 1 : mark.column + 1] == "${":
        said = "Inside braces and brackets a text with ${...} needs quotes around it."
    return Place(file, mark.line + 1, mark.column + 1), said


@dataclass(slots=True)
class _Maker:
    file: str
    lines: list[str]
    problems: list[Problem] = field(default_factory=list)
    # By the identity of YAML's node, so that a node with many aliases is made once.
    made: dict[int, Node] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)

    def node(self, node: yaml.Node) -> Node:
        if id(node) in self.made:
            return self.made[id(node)]
        if id(node) in self.open:
            self._problem(self._place(node), "This contains itself.")
            return Items(items=(), place=self._place(node))
        self.open.add(id(node))
        made = self._made(node)
        self.open.discard(id(node))
        self.made[id(node)] = made
        return made

    def _made(self, node: yaml.Node) -> Node:
        if isinstance(node, yaml.MappingNode):
            return self._entries(node)
        if isinstance(node, yaml.SequenceNode):
            items = tuple(self.node(item) for item in node.value)
            return Items(items=items, place=self._place(node))
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node)

    def _scalar(self, node: yaml.ScalarNode) -> Scalar:
        is_tagged = node.tag != _STANDARD + "str"
        if is_tagged and node.tag not in _PLAIN_TAGS and node.tag != _STANDARD + "binary":
            shown = node.tag.replace(_STANDARD, "!!")
            self._problem(self._place(node), f"The tag {shown} is not known here.")
        place = self._place(node)
        written = self._line(node.start_mark.line)[node.start_mark.column :]
        return Scalar(
            text=node.value,
            # `!!str 5` is a text, although it has no quotes.
            is_plain=node.tag in _PLAIN_TAGS or (not node.style and not written.startswith("!")),
            is_binary=node.tag == _STANDARD + "binary",
            is_literal=node.style == "|",
            place=place,
            text_place=self._text_place(node, place),
            written=self._written(node),
        )

    def _written(self, node: yaml.ScalarNode) -> Scalar | None:
        """What YAML joins to one line, unless it holds more than its words, such as escapes.

        What stands before it in its first line becomes blanks, so that columns are the file's.
        """
        first, last = node.start_mark.line, node.end_mark.line
        if node.style == "|" or first == last:
            return None
        lines = [self._line(number) for number in range(first, last + 1)]
        lines[-1] = lines[-1][: node.end_mark.column]
        if node.style == ">":
            first, lines = first + 1, lines[1:]
        else:
            quote = 1 if node.style else 0
            lines[-1] = lines[-1][: len(lines[-1]) - quote]
            start = node.start_mark.column + quote
            lines[0] = " " * start + lines[0][start:]
        text = "\n".join(lines)
        if text.split() != node.value.split():
            return None
        place = Place(self.file, first + 1, 1)
        return Scalar(text=text, is_literal=True, place=self._place(node), text_place=place)

    def _text_place(self, node: yaml.ScalarNode, place: Place) -> Place:
        if node.style in ("'", '"'):
            return Place(self.file, place.line, node.start_mark.column + 2)
        if node.style not in ("|", ">"):
            return place
        # Its first line that is not blank tells how far the text is indented.
        first = next((line for line in node.value.split("\n") if line.strip()), "")
        line_number = node.start_mark.line + 1
        for written in self.lines[line_number:]:
            if written.strip():
                indent = written.find(first.split("\n")[0]) if first else 0
                # A folded text joins lines, so its first line begins like the written one.
                indent = len(written) - len(written.lstrip(" ")) if indent < 0 else indent
                return Place(self.file, line_number + 1, indent + 1)
        return Place(self.file, line_number + 1, 1)

    def _entries(self, node: yaml.MappingNode) -> Entries:
        own: dict[str, tuple[Scalar, Node]] = {}
        merged: dict[str, tuple[Scalar, Node]] = {}
        for key_node, value_node in node.value:
            key = self.node(key_node)
            value = self.node(value_node)
            if not isinstance(key, Scalar):
                self._problem(key.place, "A key must be text.")
            elif key.text == _MERGE and key.is_plain:
                merged.update(self._merged(value))
            elif key.text in own:
                earlier = own[key.text][0].place.line
                sentence = f"The key {key.text} is given twice, first in line {earlier}."
                self._problem(key.place, sentence)
            else:
                own[key.text] = (key, value)
        entries = {**merged, **own}
        return Entries(entries=tuple(entries.values()), place=self._place(node))

    def _merged(self, value: Node) -> dict[str, tuple[Scalar, Node]]:
        """What `<<: *other` takes over; of several, the first one wins."""
        parts = value.items if isinstance(value, Items) else (value,)
        found: dict[str, tuple[Scalar, Node]] = {}
        for part in reversed(parts):
            if isinstance(part, Entries):
                found.update({key.text: (key, node) for key, node in part.entries})
            else:
                self._problem(part.place, "Only a map, or a list of maps, can be merged with <<.")
        return found

    def _place(self, node: yaml.Node) -> Place:
        return Place(self.file, node.start_mark.line + 1, node.start_mark.column + 1)

    def _line(self, number: int) -> str:
        return self.lines[number] if number < len(self.lines) else ""

    def _problem(self, place: Place, sentence: str) -> None:
        self.problems.append(Problem(place, sentence))
