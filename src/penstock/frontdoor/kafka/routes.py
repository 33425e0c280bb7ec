"""From the first bytes of a request to who serves it, and from an answer to its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.broker.later import Task
from penstock.protocol.kafka.codec import encode
from penstock.protocol.kafka.headers import encode_response_header

if TYPE_CHECKING:
    from penstock.frontdoor.kafka.api import Api, Body, Call
    from penstock.observe.instruments import Requests
    from penstock.observe.node_counters import NodeCounters

# A whole frame; no parts, no reply.
Reply: TypeAlias = "Body"

_CORRELATION_ID_SIZE: Final = 4
_pack_start = Struct(">ii").pack


class Route:
    """One API in one version, with what can be known before the request is here."""

    __slots__ = (
        "_encode",
        "_header_size",
        "_header_tail",
        "api",
        "decode",
        "handle",
        "request",
        "requests",
        "version",
    )

    def __init__(self, api: Api, version: int, requests: Requests | None = None) -> None:
        """`requests` counts those of the API, in all its versions; None counts nothing."""
        self.api = api
        self.requests = requests
        self.version = version
        self.request = api.request
        self.handle = _in_task(api.handle) if iscoroutinefunction(api.handle) else api.handle
        self.decode = api.decode
        self._encode = api.encode
        # What follows the correlation id: nothing, or an empty set of tagged fields.
        header = encode_response_header(api.key, version, 0)
        self._header_tail = header[_CORRELATION_ID_SIZE:]
        self._header_size = len(header)

    def __str__(self) -> str:
        return f"{self.api.key.name} v{self.version}"

    def encode_answer(self, call: Call, request: Any, answer: Any, correlation_id: int) -> Reply:
        body = self._encode(call, request, answer)
        if isinstance(body, bytes):
            return self._frame(body, correlation_id)
        if not body:
            return []
        size = self._header_size + sum(map(len, body))
        return [_pack_start(size, correlation_id) + self._header_tail, *body]

    def encode_message(self, message: Any, correlation_id: int) -> Reply:
        return self._frame(encode(message, self.version), correlation_id)

    def _frame(self, body: bytes, correlation_id: int) -> bytes:
        start = _pack_start(self._header_size + len(body), correlation_id)
        return start + self._header_tail + body


def _in_task(handle: Callable[[Call, Any], Any]) -> Callable[[Call, Any], Any]:
    return lambda call, request: Task(handle(call, request))


# By the first four bytes of a request as one number.
Routes: TypeAlias = dict[int, Route]


def route_number(api_key: int, version: int) -> int:
    return (api_key & 0xFFFF) << 16 | version & 0xFFFF


def make_routes(apis: Iterable[Api], counters: NodeCounters | None = None) -> Routes:
    routes: Routes = {}
    for api in apis:
        lowest, highest = api.versions
        name = api.request.__name__.removesuffix("Request")
        requests = None if counters is None else counters.requests(name)
        for version in range(lowest, highest + 1):
            routes[route_number(api.key, version)] = Route(api, version, requests)
    return routes
