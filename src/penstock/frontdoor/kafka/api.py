"""What a handler sees and returns: the call, the answer, and the entry it has in the API table.

A handler is `handle(call, request)` and returns an answer, or a `Later` of one. An `async` handler
becomes a `Later` by itself, and is cancelled when the connection closes. An answer is a response
message, unless the API has an `encode` of its own.

A decoded request's `records` point into the connection's receive buffer and are valid only until
the handler returns or first suspends: what is needed later must be copied before. All other
fields are independent of the buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from penstock.frontdoor.kafka.refusals import refusal
from penstock.protocol.kafka.codec import decode, encode

if TYPE_CHECKING:
    from penstock.broker.services import Services
    from penstock.frontdoor.kafka.fetch_sessions import FetchSessions
    from penstock.frontdoor.kafka.shares import Shares
    from penstock.frontdoor.kafka.telemetry import Telemetry
    from penstock.model.file_ranges import FileRange
    from penstock.protocol.kafka.api_keys import ApiKey
    from penstock.protocol.kafka.error_codes import ErrorCode
    from penstock.protocol.kafka.produce_bytes import ProduceForm


class Memory(Protocol):
    """What a handler keeps of a connection from one request to the next."""

    def close(self) -> None: ...


class Peer(Protocol):
    """The connection as a handler sees it."""

    # Of the one API that keeps any; closed with the connection.
    memory: Memory | None

    # The client's name and version, as ApiVersions told them.
    software: tuple[str, str]

    @property
    def fetch_sessions(self) -> FetchSessions:
        """Of all connections: a consumer may come back over another one."""
        ...

    @property
    def shares(self) -> Shares:
        """Of all connections."""
        ...

    @property
    def telemetry(self) -> Telemetry:
        """Of all connections."""
        ...

    @property
    def id(self) -> int:
        """Unique among all connections of this process, also the closed ones."""
        ...

    @property
    def opened_at(self) -> float:
        """In seconds of the monotonic clock."""
        ...

    @property
    def peer_host(self) -> str: ...

    @property
    def peer_port(self) -> int: ...


class Call:
    """One request's surroundings: who asks, in which version, and what the broker offers."""

    __slots__ = ("api_key", "client_id", "connection", "now", "services", "version")

    def __init__(
        self,
        services: Services,
        api_key: int,
        version: int,
        client_id: str | None,
        connection: Peer,
        now: float,
    ) -> None:
        self.services = services
        self.api_key = api_key
        self.version = version
        self.client_id = client_id
        self.connection = connection
        # The monotonic clock when the request was started.
        self.now = now

    def failed(self, code: int) -> None:
        """The request, or one of its partitions, is answered with an error."""


# An encoded response body: in one piece, or in parts when some of it is in files.
Body: TypeAlias = "bytes | list[bytes | FileRange]"
# What `encode` gives where the client expects nothing.
NO_REPLY: Body = []


def decode_message(call: Call, frame: memoryview, position: int, request: type[Any]) -> Any:
    return decode(request, call.version, frame, position)


def encode_message(call: Call, request: Any, answer: Any) -> bytes:
    code = getattr(answer, "error_code", 0)
    if code:
        call.failed(code)
    return encode(answer, call.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API as this broker serves it; what is listed here is what ApiVersions advertises."""

    key: ApiKey
    # Lowest and highest version served, both inclusive.
    versions: tuple[int, int]
    request: type[Any]
    response: type[Any]
    # Messages have no common base, hence the wide types.
    handle: Callable[[Call, Any], Any]
    # Turns the bytes of a frame from a position on into a request; raises DecodeError.
    decode: Callable[[Call, memoryview, int, type[Any]], Any] = decode_message
    # Turns the call, its request and the answer into bytes.
    encode: Callable[[Call, Any, Any], Body] = encode_message
    # Builds the response for a request that is refused or fails as a whole, where it does not
    # follow from the schemas. None: such a request costs the client its connection.
    refuse: Callable[[Call, Any, ErrorCode], Any] | None = None
    # For APIs that may wait long for others (long polls, joins): when the node drains, a waiting
    # call is cancelled and refused with this code at once.
    drain_code: ErrorCode | None = None
    # The connection stops reading after such a request while unflushed bytes are over their limit.
    adds_pressure: bool = False
    # Such a request starts while others of the same API wait for their answers.
    is_pipelined: bool = False
    # Learns from a request, its version, its frame, where its body begins and its client's id how
    # to recall the next one like it.
    learn: Callable[[Any, int, memoryview, int, str | None], ProduceForm | None] | None = None

    def refusal(self, call: Call, request: Any, code: ErrorCode) -> Any:
        """The response for a request that is refused as a whole; None if it has to end the
        connection."""
        if self.refuse is not None:
            return self.refuse(call, request, code)
        return refusal(self.response, request, call.version, code)
