"""Records of a topic as a test case gives them: a value, and whatever else matters to the test."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.pipelines.specification.model import ArchiveSource, Row, TopicSource
from penstock.pipelines.trying.typed_values import NotOfType, binary

# What a record has where the case does not say it.
FIRST_TIMESTAMP = datetime(1970, 1, 1, tzinfo=UTC)
CREATE_TIME = 0


def topic_of(source: TopicSource | ArchiveSource) -> str:
    """The topic that records come from unless they say so themselves."""
    if isinstance(source, ArchiveSource):
        return source.name
    options = {name.lower(): value for name, value in source.options.items()}
    return options.get("subscribe", source.name).split(",")[0].strip()


def where_it_lay(topic: str, offset: int) -> dict[str, Any]:
    """The columns that a record gets from its topic."""
    return {
        "topic": topic,
        "partition": 0,
        "offset": offset,
        "timestamp": FIRST_TIMESTAMP + timedelta(milliseconds=offset),
        "timestampType": CREATE_TIME,
    }


def with_headers(row: Row) -> dict[str, Any]:
    """The row with headers in the shape of the topic's column."""
    changed = dict(row)
    if row.get("headers") is not None:
        changed["headers"] = headers_of(row["headers"])
    return changed


def headers_of(given: Any) -> list[dict[str, Any]]:
    """Headers as a mapping, or as a list of {key, value} where one key comes twice."""
    if isinstance(given, Mapping):
        return [{"key": str(key), "value": _header_bytes(value)} for key, value in given.items()]
    is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    if not is_list or any(not isinstance(one, Mapping) or "key" not in one for one in given):
        raise NotOfType(f"Headers must be a mapping or a list of {{key, value}}, not {given!r}.")
    return [{"key": one["key"], "value": _header_bytes(one.get("value"))} for one in given]


def _header_bytes(value: Any) -> bytes | None:
    return None if value is None else binary(value)
