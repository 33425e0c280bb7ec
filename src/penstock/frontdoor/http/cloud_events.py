"""CloudEvents 1.0 as records of Kafka's protocol binding.

Over HTTP an event comes in binary mode (attributes in headers `ce-*`, data in the body), in
structured mode (all of it as JSON), or with others in a JSON array. In binary mode the record has
headers `ce_*` and the data as its value; otherwise its value is the event as JSON. The attribute
`partitionkey`, where there is one, becomes the record's key.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from penstock.frontdoor.http.messages import CloudEvent
from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.requests import Request, decode_json
from penstock.frontdoor.http.values import check_count, compact
from penstock.records.rows import Row

STRUCTURED_TYPE: Final = "application/cloudevents+json"
BATCH_TYPE: Final = "application/cloudevents-batch+json"
# Stands among content types for events in binary mode, whose data may have any.
BINARY_MODE: Final = "cloudevents"
BODIES: Final[Mapping[str, Any]] = {
    STRUCTURED_TYPE: CloudEvent,
    BATCH_TYPE: list[CloudEvent],
    BINARY_MODE: None,
}
_STORED_TYPE: Final = b"application/cloudevents+json; charset=UTF-8"
_PREFIX: Final = "ce-"
_REQUIRED: Final = ("id", "source", "type", "specversion")
_VERSION: Final = "1.0"

_EVENT: Final = msgspec.json.Decoder(CloudEvent)
_RAW_EVENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


def is_binary(request: Request) -> bool:
    return f"{_PREFIX}specversion" in request.headers


def binary(request: Request, body: bytes, now_ms: int) -> list[Row]:
    attributes = {
        name.removeprefix(_PREFIX): unquote(value)
        for name, value in request.headers.items()
        if name.startswith(_PREFIX)
    }
    for name in _REQUIRED:
        if not attributes.get(name):
            raise Problem(400, f"The CloudEvent has no header ce-{name}.")
    _check_version(attributes["specversion"])
    headers = [(f"ce_{name}", value.encode()) for name, value in attributes.items()]
    content_type = request.headers.get("content-type")
    if content_type:
        headers.append(("content-type", content_type.encode()))
    key = attributes.get("partitionkey")
    return [Row(key.encode() if key else None, body or None, headers, now_ms)]


def structured(_: Request, body: bytes, now_ms: int) -> list[Row]:
    return [_row(body, now_ms, "The CloudEvent")]


def batch(_: Request, body: bytes, now_ms: int) -> list[Row]:
    check_count(body)
    events = decode_json(_RAW_EVENTS, body)
    if not events:
        raise Problem(400, "The batch holds no CloudEvents.")
    return [_row(bytes(event), now_ms, f"CloudEvent {index}") for index, event in enumerate(events)]


def _row(raw: bytes, now_ms: int, what: str) -> Row:
    try:
        event = decode_json(_EVENT, raw)
    except Problem as problem:
        raise Problem(400, f"{what}: {problem.detail}", reason=problem.reason) from None
    key = event.partitionkey
    headers = [("content-type", _STORED_TYPE)]
    return Row(None if key is None else key.encode(), compact(raw), headers, now_ms)


def _check_version(version: str) -> None:
    if version != _VERSION:
        raise Problem(400, f"CloudEvents of version {version!r} are not known, only {_VERSION}.")


FORMS: Final[Mapping[str, Callable[[Request, bytes, int], list[Row]]]] = {
    STRUCTURED_TYPE: structured,
    BATCH_TYPE: batch,
}
