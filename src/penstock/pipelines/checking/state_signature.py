"""What the state of a stream is made of, so that a changed flow is told apart from its old state.

Spark itself refuses a state whose types have changed, but not one whose meaning has: a window of
another length, another aggregate of the same type, another key of the same name. The signature
holds that, and nothing of what may change freely: filters, columns that no state holds, names of
results, the delay of a watermark.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame

# A column in Spark's plans is `name#id`, with an L after the id of a long, and the delay of its
# watermark behind it.
IDENTITY = re.compile(r"#(\d+)L?(?:-T\d+ms)?")
COLUMN = re.compile(r"(?P<name>[^\s(),#]+)#(?P<id>\d+)L?(?:-T\d+ms)?")
WINDOW = re.compile(
    r"named_struct\(start, .*?precisetimestampconversion\((?P<column>[^,()]+), .*"
    r"- (?P<offset>-?\d+)\) % (?P<slide>\d+)\).*\+ (?P<size>\d+)\), LongType"
)
# What decoding is made of changes with every field of a schema, and keys come from it by name.
DECODED = "__penstock"
MICROSECONDS_PER_SECOND = 1_000_000
DEFINITION_DEPTH_MAX = 20

# Nodes of a Java plan, which Python has no types for.
Node = Any


def state_signature(frame: DataFrame) -> tuple[str, ...]:
    """One line for each stateful operator, from the sink to the sources; empty without state."""
    plan = frame._jdf.queryExecution().analyzed()
    return tuple(line for node in _nodes(plan) for line in _line(node))


def _nodes(plan: Node) -> Iterator[Node]:
    yield plan
    for child in _items(plan.children()):
        yield from _nodes(child)


def _line(node: Node) -> Iterator[str]:
    if not node.isStreaming():
        return
    match node.nodeName():
        case "Aggregate":
            keys = _keys(node, _items(node.groupingExpressions()))
            aggregates = _aggregates(_items(node.aggregateExpressions()))
            yield f"aggregation by {keys}: {', '.join(sorted(set(aggregates))) or 'nothing'}"
        case "Distinct":
            yield f"distinct rows by {_keys(node, _items(node.output()))}"
        case "Deduplicate":
            yield f"deduplication by {_keys(node, _items(node.keys()))}"
        case "DeduplicateWithinWatermark":
            yield f"deduplication within the watermark by {_keys(node, _items(node.keys()))}"
        case "Join" if all(child.isStreaming() for child in _items(node.children())):
            yield f"join of streams, {_text(node.joinType())}, on {_condition(node)}"
        case "GlobalLimit":
            yield f"limit of {_text(node.limitExpr())} rows"
        case name if "WithState" in name:
            yield _with_state(node)


def _aggregates(expressions: list[Node]) -> Iterator[str]:
    """The aggregate functions inside, whatever is made of their results."""
    for expression in expressions:
        if expression.getClass().getSimpleName() == "AggregateExpression":
            yield f"{_text(expression)} {expression.dataType().simpleString()}"
        else:
            yield from _aggregates(_items(expression.children()))


def _keys(node: Node, keys: list[Node]) -> str:
    definitions = _definitions(node)
    return ", ".join(f"{_key(key, definitions)} {key.dataType().simpleString()}" for key in keys)


def _key(key: Node, definitions: dict[str, str]) -> str:
    if key.getClass().getSimpleName() == "AttributeReference":
        # By its id, because a column without an alias is named by its whole expression.
        return _defined(definitions.get(str(key.exprId().id()), key.toString()), definitions)
    return _defined(key.toString(), definitions)


def _with_state(node: Node) -> str:
    """A function of the user's; Spark itself checks the types of what it keeps."""
    words = [f"function with state by {_group_keys(node)}"]
    for name in ("timeMode", "timeout", "stateType"):
        with suppress(Py4JError):
            words.append(_text(getattr(node, name)()))
    return ", ".join(words)


def _group_keys(node: Node) -> str:
    with suppress(Py4JError):
        return _keys(node, _items(node.groupingAttributes()))
    with suppress(Py4JError):
        # Of a function in Python the keys are the first columns that it is given.
        first = _items(node.children())[0]
        return _keys(first, _items(first.output())[: node.groupingAttributesLen()])
    return "its keys"


def _condition(node: Node) -> str:
    condition = node.condition()
    if condition.isEmpty():
        return "nothing"
    return _defined(condition.get().toString(), _definitions(node))


def _definitions(node: Node) -> dict[str, str]:
    """How columns below the node came to be, by the id that Spark gave them."""
    found: dict[str, str] = {}
    for below in _nodes(node):
        match below.nodeName():
            case "Project":
                _note(found, _items(below.projectList()))
            case "Aggregate" if below is not node:
                _note(found, _items(below.aggregateExpressions()))
            case "Expand":
                first = _items(_items(below.projections())[0])
                for attribute, expression in zip(_items(below.output()), first, strict=False):
                    _put(found, attribute.exprId().id(), expression.toString())
    return found


def _note(found: dict[str, str], expressions: list[Node]) -> None:
    for expression in expressions:
        if expression.getClass().getSimpleName() == "Alias":
            _put(found, expression.exprId().id(), expression.child().toString())


def _put(found: dict[str, str], identity: int, text: str) -> None:
    # A column that is passed on unchanged is defined by its own name.
    if f"#{identity}" not in text and DECODED not in text:
        found.setdefault(str(identity), text)


def _defined(text: str, definitions: dict[str, str], depth: int = 0) -> str:
    """The expression in terms of the columns that were read; windows in words."""

    def definition(match: re.Match[str]) -> str:
        found = definitions.get(match["id"])
        if found is None or depth == DEFINITION_DEPTH_MAX:
            return match["name"]
        return _defined(found, definitions, depth + 1)

    filled = COLUMN.sub(definition, text)
    return _window_in_words(IDENTITY.sub("", filled))


def _window_in_words(text: str) -> str:
    match = WINDOW.search(text)
    if match is None:
        return text
    size, slide, offset = (int(match[name]) for name in ("size", "slide", "offset"))
    words = f"window of {_seconds(size)} on {match['column']}"
    if slide != size:
        words += f" every {_seconds(slide)}"
    return words + (f" from {_seconds(offset)}" if offset else "")


def _seconds(microseconds: int) -> str:
    return f"{microseconds / MICROSECONDS_PER_SECOND:g} s"


def _text(node: Node) -> str:
    return IDENTITY.sub("", str(node.toString()))


def _items(sequence: Node) -> list[Node]:
    return [sequence.apply(index) for index in range(sequence.size())]
