"""What a schema calls the records that it describes, which may be part of a subject's name."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from penstock.registry.schemas import AVRO, JSON

# Schemas whose names are kept: a topic's records have few of them.
NAMES_KEPT: Final = 1_000
_NAMED_TYPES: Final = frozenset({"record", "error", "enum", "fixed"})
# Of Protobuf's source: what may hide a word, then the words that count.
_PROTOBUF: Final = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
    r"""|\bpackage\s+(?P<package>[\w.]+)\s*;|\bmessage\s+(?P<message>\w+)\s*\{|(?P<brace>[{}])""",
    re.DOTALL,
)


@lru_cache(NAMES_KEPT)
def record_names(kind: str, text: str) -> frozenset[str]:
    """Of Avro the full name, of JSON the title, of Protobuf every message's; empty without one."""
    if kind not in (AVRO, JSON):
        return frozenset(_messages(text))
    try:
        schema = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return frozenset()
    name = _avro_name(schema) if kind == AVRO else _title(schema)
    return frozenset([name] if name else [])


def _avro_name(schema: Any) -> str | None:
    if not isinstance(schema, dict) or schema.get("type") not in _NAMED_TYPES:
        return None
    name, namespace = schema.get("name"), schema.get("namespace")
    if not isinstance(name, str):
        return None
    is_full = "." in name or not isinstance(namespace, str) or not namespace
    return name if is_full else f"{namespace}.{name}"


def _title(schema: Any) -> str | None:
    title = schema.get("title") if isinstance(schema, dict) else None
    return title if isinstance(title, str) else None


def _messages(source: str) -> Iterator[str]:
    """Full names, also of messages inside others."""
    package = ""
    # The name at each open brace; empty where it is not a message's.
    around: list[str] = []
    for found in _PROTOBUF.finditer(source):
        if found["package"]:
            package = found["package"]
        elif found["message"]:
            around.append(found["message"])
            yield ".".join(each for each in (package, *around) if each)
        elif found["brace"] == "{":
            around.append("")
        elif found["brace"] and around:
            around.pop()
