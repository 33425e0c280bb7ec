"""The reference page of the Python client, from its signatures and docstrings."""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import penstock
from penstock.client import asynchronous, configs, errors, groups, offsets, queues, topics
from penstock.client.consumer import ConsumedRecord
from penstock.client.lock import AsyncLock, Lock
from penstock.client.producer import Delivery, Sending
from penstock.client.queue import Message

HEAD = """\
# Python client

What `penstock` exports for Python programs. [Use the Python
client](../how-to/use-the-python-client.md) shows it by examples. Classes whose names begin with
Async are for asyncio: their calls are awaited, and do the same as those without. Where `bootstrap`
is left out, the address is that of the variable `PENSTOCK_BOOTSTRAP`, or `127.0.0.1:9092`.
A `Bound` is a position in a partition: an offset, a `datetime`, a text such as `"latest"`,
`"2026-05-01T12:00"`, `"15m"` (ago) or `"-10"` (the last ten), or a class of
`penstock.client.positions`.
"""

# Those that a program calls; the rest is for the commands and for the twins.
CLASSES: dict[str, dict[type, tuple[str, ...]]] = {
    "Producer": {
        penstock.Producer: ("send", "flush", "close"),
        Sending: ("done", "result"),
        Delivery: (),
        penstock.AsyncProducer: ("send", "send_and_wait", "flush"),
    },
    "Consumer": {
        penstock.Consumer: (
            "batches",
            "poll",
            "done",
            "commit",
            "stop",
            "assign",
            "subscribe",
            "close",
        ),
        ConsumedRecord: ("text", "json"),
        penstock.AsyncConsumer: ("batches", "poll", "done", "commit", "stop"),
    },
    "Queue": {
        penstock.Queue: ("take", "work", "stop"),
        Message: ("ack", "nack", "reject", "text", "json"),
        penstock.Reject: (),
        penstock.AsyncQueue: ("take", "work", "stop"),
    },
    "Lock": {
        Lock: ("acquire", "release"),
        AsyncLock: ("acquire", "release", "lost"),
    },
    "Admin": {penstock.Admin: ("cluster", "close"), penstock.AsyncAdmin: ("cluster",)},
}
# What makes them, where that is not the class itself.
FUNCTIONS: dict[str, tuple[Callable[..., Any], ...]] = {"Lock": (penstock.lock, penstock.alock)}
PARTS: dict[str, tuple[type, type]] = {
    "topics": (topics.Topics, asynchronous.AsyncTopics),
    "settings": (configs.Configs, asynchronous.AsyncConfigs),
    "groups": (groups.Groups, asynchronous.AsyncGroups),
    "queues": (queues.Queues, asynchronous.AsyncQueues),
    "offsets": (offsets.Offsets, asynchronous.AsyncOffsets),
}


def page() -> str:
    sections = [HEAD]
    for title, classes in CLASSES.items():
        sections.append(f"## {title}\n")
        sections += [_function(each.__name__, each) for each in FUNCTIONS.get(title, ())]
        sections += [_class(each, names) for each, names in classes.items()]
    sections += [_part(name, *kinds) for name, kinds in PARTS.items()]
    sections.append("## Tables\n")
    functions = (penstock.read_arrow, penstock.read_pandas, penstock.read_polars, penstock.sql)
    sections += [_function(each.__name__, each) for each in functions]
    sections.append(_errors())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(sections))


def _class(kind: type, names: tuple[str, ...]) -> str:
    lines = [f"### {kind.__name__}\n", _code(f"{kind.__name__}{_signature(kind)}")]
    lines.append(_text(kind) + "\n")
    return "\n".join([*lines, *(_function(name, getattr(kind, name)) for name in names)])


def _part(name: str, kind: type, twin: type) -> str:
    """Those calls of a part that its twin has too."""
    names = [each for each in vars(twin) if not each.startswith("_")]
    head = f"### Admin.{name}\n"
    return "\n".join([head, *(_function(f"{name}.{each}", getattr(kind, each)) for each in names)])


def _function(name: str, function: Callable[..., Any]) -> str:
    word = "await " if inspect.iscoroutinefunction(function) else ""
    return "\n".join([_code(f"{word}{name}{_signature(function)}"), _text(function) + "\n"])


def _signature(function: Callable[..., Any]) -> str:
    if isinstance(function, type) and issubclass(function, Exception):
        return "(text)"
    found = inspect.signature(function)
    kept = [each for each in found.parameters.values() if each.name != "self"]
    kept = [each.replace(annotation=_annotation(each.annotation)) for each in kept]
    returned = inspect.Signature.empty
    if not isinstance(function, type) and found.return_annotation not in (None, "None"):
        returned = _annotation(found.return_annotation)
    text = str(found.replace(parameters=kept, return_annotation=returned))
    # Annotations that are texts are shown in quotes.
    return re.sub(r"""(?<=[:>] )(['"])(.*?)\1(?=,| =|\)|$)""", r"\2", text)


def _annotation(given: Any) -> Any:
    """Without the packages that it comes from."""
    if given is inspect.Parameter.empty:
        return given
    text = given if isinstance(given, str) else inspect.formatannotation(given)
    text = re.sub(r"\b(?:[a-z_]+\.)+([A-Z]\w*)", r"\1", text).replace(
        "datetime.datetime", "datetime"
    )
    # How Python spells what is one word in the code.
    text = text.replace("Mapping[str, Any] | Iterable[tuple[str, Any]]", "Headers")
    bound = "int | str | datetime | Beginning | End | AtOffset | Last | AtTime | None"
    return text.replace(bound, "Bound")


def _code(text: str) -> str:
    if len(text) > 90:
        head, _, rest = text.partition("(")
        inside, _, tail = rest.rpartition(")")
        inside = "\n".join(f"    {each}," for each in _arguments(inside))
        text = f"{head}(\n{inside}\n){tail}"
    return f"```text\n{text}\n```\n"


def _arguments(text: str) -> Iterator[str]:
    depth, begin = 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and depth == 0:
            yield text[begin:at].strip()
            begin = at + 1
    yield text[begin:].strip()


def _text(thing: Any) -> str:
    """A docstring, with its indented lines as code."""
    found = inspect.getdoc(thing) or ""
    if isinstance(thing, type) and vars(thing).get("__doc__") is None:
        found = ""
    if found.startswith(f"{getattr(thing, '__name__', '')}("):
        # What a dataclass says of itself is its signature.
        found = ""
    parts = []
    for part in re.split(r"\n\n", found):
        is_code = part.startswith(("    ", "async with"))
        parts.append(f"```python\n{textwrap.dedent(part)}\n```" if is_code else part)
    return "\n\n".join(parts)


def _errors() -> str:
    kinds = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.ClientError)
    ]
    rows = [
        f"| `{each.__name__}` | `{each.__bases__[0].__name__}` | {_text(each).split(chr(10))[0]} |"
        for each in kinds
    ]
    head = "## Errors\n\nIn `penstock.client.errors`. The text of each is one sentence.\n\n"
    return head + "| error | is a | when |\n|---|---|---|\n" + "\n".join(rows) + "\n"
