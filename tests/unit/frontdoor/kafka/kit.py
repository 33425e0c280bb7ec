"""A door with handlers of the test's own, and a bare client that sees every byte."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from struct import Struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from penstock.frontdoor.kafka.api import NO_REPLY, Api, Body, Call
from penstock.frontdoor.kafka.door import KafkaDoor
from penstock.frontdoor.kafka.handlers import api_versions
from penstock.model.limits import Limits
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import decode, encode
from penstock.protocol.kafka.headers import decode_response_header, encode_request_header
from penstock.protocol.kafka.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.unit.clocks import ManualClock

if TYPE_CHECKING:
    from penstock.broker.services import Services

LENGTH = Struct(">i")
# How long anything may take on a machine that is busy with other things.
PATIENCE_SECONDS = 60.0

Handler = Callable[[Call, Any], Any]


class ManualPressure:
    def __init__(self) -> None:
        self.is_over = False
        self._callbacks: list[Callable[[], None]] = []

    def on_relief(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def relieve(self) -> None:
        self.is_over = False
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


def encode_any(call: Call, request: HeartbeatRequest, answer: Any) -> Body:
    """Answers may be bytes and parts, or nothing at all."""
    if answer is None:
        return NO_REPLY
    return answer if isinstance(answer, bytes | list) else encode(answer, call.version)


def heartbeat_api(handle: Handler, **options: Any) -> Api:
    options = {"encode": encode_any} | options
    return Api(
        key=ApiKey.HEARTBEAT,
        versions=(0, 4),
        request=HeartbeatRequest,
        response=HeartbeatResponse,
        handle=handle,
        **options,
    )


def describe_api(handle: Handler, **options: Any) -> Api:
    """A second API, without a way to report a failure of the whole request."""
    options = {"refuse": lambda call, request, code: None} | options
    return Api(
        key=ApiKey.DESCRIBE_GROUPS,
        versions=(0, 5),
        request=DescribeGroupsRequest,
        response=DescribeGroupsResponse,
        handle=handle,
        **options,
    )


def beat(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    """Answers with the generation, so that a test sees which request it answers."""
    return HeartbeatResponse(throttle_time_ms=request.generation_id)


class Client:
    """Sends frames and reads them, with nothing in between."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, *, receive_bytes: int = 0) -> "Client":
        sock = socket.socket()
        # What is sent in pieces must arrive in pieces, and not wait for the answer to the first.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=2**16)
        return cls(reader, writer)

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def read_frame(self) -> bytes:
        async with asyncio.timeout(PATIENCE_SECONDS):
            (length,) = LENGTH.unpack(await self.reader.readexactly(4))
            return await self.reader.readexactly(length)

    async def read_beat(self) -> tuple[int, HeartbeatResponse]:
        """The next reply, which must be one to a Heartbeat in version 4."""
        frame = memoryview(await self.read_frame())
        correlation_id, position = decode_response_header(ApiKey.HEARTBEAT, 4, frame)
        return correlation_id, decode(HeartbeatResponse, 4, frame, position)

    async def is_closed(self) -> bool:
        """Waits for the other side to end, past whatever it still sends."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                while await self.reader.read(2**16):
                    pass
            except ConnectionError:
                pass
            return True

    def close(self) -> None:
        self.writer.transport.abort()


def call_soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)


def frame_of(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def request_frame(message: object, key: ApiKey, version: int, correlation_id: int) -> bytes:
    header = encode_request_header(key, version, correlation_id, "tester")
    return frame_of(header + encode(message, version))


def beat_frame(number: int, *, padding: int = 0) -> bytes:
    """A Heartbeat whose answer carries `number`."""
    request = HeartbeatRequest(group_id="g" * padding, generation_id=number)
    return request_frame(request, ApiKey.HEARTBEAT, 4, number)


def describe_frame(number: int) -> bytes:
    return request_frame(DescribeGroupsRequest(), ApiKey.DESCRIBE_GROUPS, 5, number)


class House:
    """A running door and what belongs to it."""

    def __init__(self, apis: list[Api], limits: Limits, use_cases: dict[str, Any]) -> None:
        self.clock = ManualClock(ms=1_000_000)
        self.pressure = ManualPressure()
        table = {api.key: api for api in apis}
        table[ApiKey.API_VERSIONS] = api_versions.make_api(apis)
        self.subscriptions: list[str] = []
        services = cast(
            "Services",
            SimpleNamespace(
                pressure=self.pressure,
                partitions=SimpleNamespace(soon=call_soon),
                client_metrics=SimpleNamespace(subscriptions=lambda: self.subscriptions),
                limits=limits,
                **{"fetch": SimpleNamespace(reader=None), "queues": None, **use_cases},
            ),
        )
        self.door = KafkaDoor(services, limits, self.clock, apis=table)
        self.port = 0
        self._clients: list[Client] = []

    async def connect(self, *, receive_bytes: int = 0) -> Client:
        client = await Client.connect(self.port, receive_bytes=receive_bytes)
        self._clients.append(client)
        return client

    async def settle(self, condition: Callable[[], bool]) -> None:
        """Lets the loop run until `condition` holds."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                await asyncio.sleep(0.001)

    def close_clients(self) -> None:
        for client in self._clients:
            client.close()


@asynccontextmanager
async def open_house(*apis: Api, **parts: Any) -> AsyncIterator[House]:
    """The parts are limits, which are numbers, and use cases."""
    limits = {name: part for name, part in parts.items() if isinstance(part, int)}
    use_cases = {name: part for name, part in parts.items() if name not in limits}
    house = House(list(apis) or [heartbeat_api(beat)], Limits(**limits), use_cases)
    house.port = (await house.door.start("127.0.0.1", 0)).port
    try:
        yield house
    finally:
        house.close_clients()
        await house.door.drain(1.0)
        assert house.door.connections == 0
        assert house.door.budget.used == 0, "every byte was given back"


async def quiet() -> None:
    """Time for what must not happen; who waits for what must happen uses `House.settle`."""
    for _ in range(20):
        await asyncio.sleep(0.002)
