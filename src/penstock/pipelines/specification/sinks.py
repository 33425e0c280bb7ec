"""Reads where a flow goes: a topic, a table of files, the terminal, a function."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from penstock.pipelines.specification.context import Context
from penstock.pipelines.specification.fields import (
    Fields,
    corrected,
    entries_of,
    every_key,
    kind_of,
    listed,
)
from penstock.pipelines.specification.function_files import read_reference, signature_of
from penstock.pipelines.specification.model import (
    ConsoleSink,
    FunctionSink,
    LakeFormat,
    LakeSink,
    Sink,
    TopicSink,
)
from penstock.pipelines.specification.problems import SpecificationRefused
from penstock.pipelines.specification.topic_options import (
    BOOTSTRAP,
    BROKERS_DEFAULT,
    is_write_option,
    read_topic_options,
)
from penstock.pipelines.specification.tree import Node, Scalar

CONSOLE_ROWS = 20

_LAKE_KEYS = ("partition_by", "evolve", "options")
KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "topic": ("topic", "brokers", "key", "options"),
        **{one.value: (one.value, *_LAKE_KEYS) for one in LakeFormat},
        "console": ("console",),
        "function": ("function",),
    }
)


def read_sink(node: Node, context: Context, *, owner: str = "the flow") -> Sink | None:
    """One sink, or None after its problems were reported."""
    before = len(context.problems)
    if isinstance(node, Scalar) and node.text == "console":
        return ConsoleSink(rows=CONSOLE_ROWS, place=node.place)
    entries = entries_of(node, context, owner=f"the key to of {owner}")
    owner = f"to of {owner}"
    entries = corrected(
        entries, context, owner=owner, known=every_key(KEYS), is_option=is_write_option
    )
    kind = kind_of(entries, KEYS, context, either="A flow goes to")
    if kind is None:
        if len(context.problems) == before:
            said = f"The key {owner} does not say where the rows go: give {listed(tuple(KEYS))}."
            context.problem(node.place, said)
        return None
    fields = Fields(entries, context, owner=owner, known=KEYS[kind])
    sink = _READERS[kind](kind, fields, context)
    return sink if len(context.problems) == before else None


def _topic_sink(kind: str, fields: Fields, context: Context) -> TopicSink:
    short = {
        BOOTSTRAP: ("brokers", fields.text("brokers", BROKERS_DEFAULT)),
        "topic": ("topic", fields.needed_text("topic")),
    }
    return TopicSink(
        options=read_topic_options(fields, context, short=short, is_source=False),
        key=fields.text_or_none("key"),
        place=fields.key_place(kind),
    )


def _lake_sink(kind: str, fields: Fields, context: Context) -> LakeSink:
    return LakeSink(
        format=LakeFormat(kind),
        path=context.path(fields.needed_text(kind)),
        partition_by=fields.texts("partition_by"),
        may_evolve=fields.flag("evolve", False),
        options=fields.pairs("options"),
        place=fields.key_place(kind),
    )


def _console_sink(kind: str, fields: Fields, context: Context) -> ConsoleSink:
    rows = fields.whole_number(kind, CONSOLE_ROWS, least=1)
    return ConsoleSink(rows=rows, place=fields.key_place(kind))


def _function_sink(kind: str, fields: Fields, context: Context) -> FunctionSink | None:
    found = fields.needed(kind)
    if found is None:
        return None
    reference = read_reference(found, context)
    if reference is None or reference.file is None:
        return None
    try:
        signature = signature_of(reference.file, reference.name, reference.place)
    except SpecificationRefused as refused:
        context.problems += refused.problems
        return None
    if len(signature.needed) > 2 or not signature.parameters:
        said = f"The function {reference.name} must take the rows, or the rows and the batch's id"
        context.problem(found.place, f"{said}; it takes {len(signature.needed)}.")
    return FunctionSink(function=reference, place=fields.key_place(kind))


_READERS: Mapping[str, Callable[[str, Fields, Context], Sink | None]] = MappingProxyType(
    {
        "topic": _topic_sink,
        **dict.fromkeys((one.value for one in LakeFormat), _lake_sink),
        "console": _console_sink,
        "function": _function_sink,
    }
)
