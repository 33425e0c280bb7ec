"""One connection to one broker: frames out and in, in the newest versions that both sides speak.

A frame is received into memory of its own, in one piece, and what a decoded answer holds of its
records are views into it: they are copied once, from the socket, and stay while they are used.
"""

import socket
import struct
import time
from collections.abc import Iterable
from typing import Any, NamedTuple, Self, TypeVar

from penstock.client.errors import ClientError
from penstock.client.wire.errors import Malformed
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import DecodeError, decode, encode_pieces
from penstock.protocol.kafka.headers import decode_response_header, encode_request_header
from penstock.protocol.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.kafka.schema import schema_of

DEFAULT_CLIENT_ID = "penstock"
ANSWER_BYTES_MAX = 256 << 20
# Version 0 is the one that every broker understands.
API_VERSIONS_VERSION = 0
VERSION_NEWEST = 2**15 - 1
# A frame up to this size gets its memory at once; for a larger one, memory is taken as it comes in.
WHOLE_FRAME_BYTES_MAX = 64 << 20
_PIECE_BYTES = 1 << 20
# Pieces up to this size are joined before they are sent; larger ones are sent from where they lie.
_JOINED_BYTES_MAX = 16 << 10
# Systems take at least this many pieces in one call.
_PIECES_MAX = 512
_SIZE = struct.Struct(">i")
_TIMEVAL = struct.Struct("@ll")

Answer = TypeVar("Answer")


class Expected(NamedTuple):
    """A request that was sent, as much of it as reading its answer takes."""

    key: ApiKey
    version: int
    correlation_id: int


class Link:
    """Not for several threads at once; `abort` alone may be called from another one."""

    def __init__(
        self, connection: socket.socket, *, name: str, client_id: str = DEFAULT_CLIENT_ID
    ) -> None:
        self.socket = connection
        # What messages about this link call the other side.
        self.name = name
        self._client_id = client_id
        self._versions: dict[int, tuple[int, int]] = {}
        self._correlation_id = 0
        self._timeout_s = 0.0
        self._unanswered = 0

    @property
    def is_idle(self) -> bool:
        """Whether every question was answered, so that somebody else may use the link."""
        return self._unanswered == 0

    @classmethod
    def open(
        cls,
        host: str,
        port: int,
        *,
        name: str,
        connect_timeout_s: float,
        answer_timeout_s: float,
        client_id: str = DEFAULT_CLIENT_ID,
        receive_buffer_bytes: int = 0,
        send_buffer_bytes: int = 0,
    ) -> Self:
        """Connects and asks what the broker speaks; raises OSError, or Malformed for others."""
        sizes = {socket.SO_RCVBUF: receive_buffer_bytes, socket.SO_SNDBUF: send_buffer_bytes}
        connection = _connect(host, port, connect_timeout_s, sizes)
        link = cls(connection, name=name, client_id=client_id)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(None)
            link.set_timeout(answer_timeout_s)
            link._learn_versions()
        except BaseException:
            connection.close()
            raise
        return link

    def set_timeout(self, timeout_s: float) -> None:
        """How long sending a request or receiving an answer may take from now on."""
        assert timeout_s > 0
        if timeout_s == self._timeout_s:
            return
        self._timeout_s = timeout_s
        microseconds = max(1, int(timeout_s * 1_000_000))
        value = _TIMEVAL.pack(*divmod(microseconds, 1_000_000))
        # The system keeps the time: with Python's own time-outs each piece of a frame would cost
        # a second system call.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)

    def close(self) -> None:
        self.socket.close()

    def abort(self) -> None:
        """Lets a thread that waits on this link fail at once."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # It is closed already, or was never connected.
            return

    def ask(
        self,
        request: object,
        answer: type[Answer],
        *,
        version_min: int = 0,
        version_max: int = VERSION_NEWEST,
    ) -> Answer:
        expected = self.send(request, version_min=version_min, version_max=version_max)
        return self.receive(expected, answer)

    def send(
        self, request: object, *, version_min: int = 0, version_max: int = VERSION_NEWEST
    ) -> Expected:
        expected, pieces = self.encode(request, version_min=version_min, version_max=version_max)
        self._unanswered += 1
        send_all(self.socket, pieces)
        return expected

    def receive(self, expected: Expected, answer: type[Answer]) -> Answer:
        decoded = self.decode(self._receive_frame(), expected, answer)
        self._unanswered -= 1
        return decoded

    # Frames as values, for anyone who moves the bytes.

    def encode(
        self, request: object, *, version_min: int = 0, version_max: int = VERSION_NEWEST
    ) -> tuple[Expected, list[Any]]:
        """The request's frame as pieces; its records are pieces as they were given."""
        schema = schema_of(type(request))
        assert schema.api_key is not None
        first, last = schema.versions
        version = self._version(schema.api_key, max(first, version_min), min(last, version_max))
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        expected = Expected(schema.api_key, version, self._correlation_id)
        header = encode_request_header(*expected, self._client_id)
        body = encode_pieces(request, version)
        size = len(header) + sum(map(len, body))
        return expected, joined([_SIZE.pack(size), header, *body])

    def decode(self, frame: bytes | bytearray, expected: Expected, answer: type[Answer]) -> Answer:
        try:
            correlation_id, position = decode_response_header(
                expected.key, expected.version, memoryview(frame)
            )
            if correlation_id != expected.correlation_id:
                raise DecodeError("it answers another request")
            return decode(answer, expected.version, frame, position)
        except DecodeError as error:
            raise Malformed(f"The answer of {self.name} makes no sense: {error}.") from None

    def frame_size(self, prefix: bytes | bytearray) -> int:
        (size,) = _SIZE.unpack(prefix)
        if not 0 < size <= ANSWER_BYTES_MAX:
            raise Malformed(f"What answers at {self.name} does not speak Kafka.")
        return int(size)

    def _learn_versions(self) -> None:
        self._versions[ApiKey.API_VERSIONS] = (API_VERSIONS_VERSION, API_VERSIONS_VERSION)
        known = self.ask(ApiVersionsRequest(), ApiVersionsResponse)
        self._versions.update(
            {one.api_key: (one.min_version, one.max_version) for one in known.api_keys}
        )

    def _version(self, key: ApiKey, first: int, last: int) -> int:
        """The newest version that both sides speak."""
        low, high = self._versions.get(key, (0, -1))
        version = min(high, last)
        if version < max(low, first):
            name = key.name.lower().replace("_", " ")
            newer = f" in version {first}" if high >= 0 and first > high else ""
            raise ClientError(f"The broker at {self.name} does not offer the call {name!r}{newer}.")
        return version

    def _receive_frame(self) -> bytes | bytearray:
        deadline = time.monotonic() + self._timeout_s
        size = self.frame_size(self._exactly(_SIZE.size, deadline))
        return self._exactly(size, deadline)

    def _exactly(self, size: int, deadline: float) -> bytes | bytearray:
        """That many bytes; usually the memory that one system call has filled."""
        first = self._some(min(size, WHOLE_FRAME_BYTES_MAX))
        return first if len(first) == size else self._rest(first, size, deadline)

    def _some(self, size: int) -> bytes:
        try:
            data = self.socket.recv(size, socket.MSG_WAITALL)
        except BlockingIOError:
            raise TimeoutError("the broker does not answer") from None
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        return data

    def _rest(self, first: bytes, size: int, deadline: float) -> bytearray:
        received = bytearray(first)
        while len(received) < size:
            if time.monotonic() > deadline:
                raise TimeoutError("the broker's answer is not complete")
            received += self._some(min(_PIECE_BYTES, size - len(received)))
        return received


def _connect(host: str, port: int, timeout_s: float, sizes: dict[int, int]) -> socket.socket:
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        connection = socket.socket(family, kind, protocol)
        try:
            for option, size in sizes.items():
                # Only before the connection is made do they count for its window.
                if size > 0:
                    connection.setsockopt(socket.SOL_SOCKET, option, size)
            connection.settimeout(timeout_s)
            connection.connect(address)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure


def joined(pieces: Iterable[Any]) -> list[Any]:
    """The same bytes in fewer pieces; large ones are left where they lie."""
    result: list[Any] = []
    small: list[Any] = []
    for piece in pieces:
        if len(piece) <= _JOINED_BYTES_MAX:
            small.append(piece)
            continue
        if small:
            result.append(b"".join(small))
            small = []
        result.append(piece)
    if small:
        result.append(b"".join(small))
    return result


def send_all(connection: socket.socket, pieces: list[Any]) -> None:
    left = [memoryview(piece) for piece in pieces]
    while left:
        try:
            left = after(left, connection.sendmsg(left[:_PIECES_MAX]))
        except BlockingIOError:
            raise TimeoutError("the broker does not read what it is sent") from None


def after(pieces: list[memoryview], sent: int) -> list[memoryview]:
    """What is left to send."""
    for index, piece in enumerate(pieces):
        if sent < len(piece):
            return [piece[sent:], *pieces[index + 1 :]]
        sent -= len(piece)
    return []
