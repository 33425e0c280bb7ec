"""From the first bytes of a request to who serves it, and from an answer to its bytes."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.frontdoor.kafka.api import Frames
from penstock.protocol.kafka.codec import encode
from penstock.protocol.kafka.headers import encode_response_header

if TYPE_CHECKING:
    from penstock.frontdoor.kafka.api import Api
    from penstock.model.file_ranges import FileRange

# A whole frame in one piece, or in parts when some of it lies in files; no parts, no reply.
Reply: TypeAlias = "bytes | list[bytes | FileRange]"

_CORRELATION_ID_SIZE: Final = 4
_pack_start = Struct(">ii").pack


class Route:
    """One API in one version, with what can be known before the request is here."""

    __slots__ = (
        "_header_size",
        "_header_tail",
        "api",
        "handle",
        "pending",
        "request",
        "response",
        "version",
    )

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.version = version
        self.request = api.request
        self.response = api.response
        self.handle = api.handle
        self.pending = api.pending
        # What follows the correlation id: nothing, or an empty set of tagged fields.
        header = encode_response_header(api.key, version, 0)
        self._header_tail = header[_CORRELATION_ID_SIZE:]
        self._header_size = len(header)

    def __str__(self) -> str:
        return f"{self.api.key.name} v{self.version}"

    def encode_reply(self, correlation_id: int, result: Any) -> Reply:
        if isinstance(result, Frames):
            parts = result.parts
            body = parts[0]
            if len(parts) > 1 or not isinstance(body, bytes):
                size = self._header_size + sum(map(len, parts))
                return [_pack_start(size, correlation_id) + self._header_tail, *parts]
        else:
            body = encode(result, self.version)
        start = _pack_start(self._header_size + len(body), correlation_id)
        return start + self._header_tail + body


# By the first four bytes of a request as one number.
Routes: TypeAlias = dict[int, Route]


def route_number(api_key: int, version: int) -> int:
    return (api_key & 0xFFFF) << 16 | version & 0xFFFF


def make_routes(apis: Iterable[Api]) -> Routes:
    routes: Routes = {}
    for api in apis:
        lowest, highest = api.versions
        for version in range(lowest, highest + 1):
            routes[route_number(api.key, version)] = Route(api, version)
    return routes
