"""Speaks Kafka's protocol over one connection, for what confluent-kafka has no call for.

Every request sent through here may be sent twice: when a broker goes away before it has
answered, the next address is asked.
"""

import socket
import struct
import time
from types import TracebackType
from typing import Self, TypeVar

from penstock.client.connection import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    DEFAULT_BOOTSTRAP,
    reason_of_failure,
    split_address,
)
from penstock.client.errors import BrokerUnreachable, ClientError, no_answer
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import DecodeError, decode, encode
from penstock.protocol.kafka.headers import decode_response_header, encode_request_header
from penstock.protocol.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.kafka.schema import schema_of

CLIENT_ID = "penstock"
ANSWER_BYTES_MAX = 256 << 20
RETRY_PAUSE_S = 0.1
# Version 0 is the one that every broker understands.
API_VERSIONS_VERSION = 0
_SIZE = struct.Struct(">i")
_PIECE_BYTES = 1 << 20

Answer = TypeVar("Answer")


class KafkaConnection:
    """One question after the other to the first broker of `bootstrap` that answers."""

    def __init__(
        self, bootstrap: str = DEFAULT_BOOTSTRAP, *, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s
        self._addresses = [one for part in bootstrap.split(",") if (one := part.strip())]
        self._at = 0
        self._socket: socket.socket | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, request: object, answer: type[Answer]) -> Answer:
        """The broker's answer; raises ClientError when nobody gives one in time."""
        deadline = time.monotonic() + self.timeout_s
        # What refuses the first connection of all will hardly have changed in a second.
        is_patient = bool(self._versions)
        while True:
            try:
                if self._socket is None:
                    self._connect()
                return self._exchange(request, answer)
            except (OSError, BrokerUnreachable) as error:
                self.close()
                self._at += 1
                if not is_patient or time.monotonic() > deadline:
                    raise self._failure(error) from None
            time.sleep(RETRY_PAUSE_S)

    def _failure(self, error: OSError | BrokerUnreachable) -> ClientError:
        if isinstance(error, BrokerUnreachable):
            return error
        return no_answer(self.bootstrap, reason_of_failure(error, self.timeout_s))

    def _connect(self) -> None:
        """Opens a connection to the first address that accepts one, and asks what it speaks."""
        reason = "the address is empty"
        for attempt in range(len(self._addresses)):
            address = self._addresses[(self._at + attempt) % len(self._addresses)]
            try:
                timeout_s = min(self.timeout_s, CONNECT_TIMEOUT_S)
                self._socket = socket.create_connection(split_address(address), timeout_s)
                # A broker that hangs must leave time to ask the others.
                self._socket.settimeout(self.timeout_s / len(self._addresses))
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._learn_versions()
            except OSError as error:
                self.close()
                reason = reason_of_failure(error, self.timeout_s)
            else:
                self._at += attempt
                return
        raise no_answer(self.bootstrap, reason)

    def _learn_versions(self) -> None:
        self._versions[ApiKey.API_VERSIONS] = (API_VERSIONS_VERSION, API_VERSIONS_VERSION)
        known = self._exchange(ApiVersionsRequest(), ApiVersionsResponse)
        self._versions.update(
            {one.api_key: (one.min_version, one.max_version) for one in known.api_keys}
        )

    def _exchange(self, request: object, answer: type[Answer]) -> Answer:
        schema = schema_of(type(request))
        assert schema.api_key is not None
        key, version = schema.api_key, self._version(schema.api_key, schema.versions)
        self._correlation_id += 1
        header = encode_request_header(key, version, self._correlation_id, CLIENT_ID)
        body = encode(request, version)
        assert self._socket is not None
        self._socket.sendall(_SIZE.pack(len(header) + len(body)) + header + body)
        frame = self._receive()
        try:
            correlation_id, position = decode_response_header(key, version, memoryview(frame))
            if correlation_id != self._correlation_id:
                raise DecodeError("it answers another question")
            return decode(answer, version, frame, position)
        except DecodeError as error:
            self.close()
            raise ClientError(f"The answer of {self.bootstrap} makes no sense: {error}.") from None

    def _version(self, key: ApiKey, ours: tuple[int, int]) -> int:
        """The newest version that both sides speak."""
        low, high = self._versions.get(key, (0, -1))
        version = min(high, ours[1])
        if version < max(low, ours[0]):
            name = key.name.lower().replace("_", " ")
            raise ClientError(f"The broker at {self.bootstrap} does not offer the call {name!r}.")
        return version

    def _receive(self) -> bytes:
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
        if not 0 < size <= ANSWER_BYTES_MAX:
            self.close()
            raise ClientError(f"What answers at {self.bootstrap} does not speak Kafka.")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        received = bytearray()
        while len(received) < size:
            data = self._socket.recv(min(_PIECE_BYTES, size - len(received)))
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            received += data
        return bytes(received)
