"""Proves whom the HTTP server cuts off, and whom it does not, on a clock of the test's own."""

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from penstock.frontdoor.http import limits
from penstock.frontdoor.http.server import CHECK_S, GuardedConnection
from penstock.model.limits import KIB, MIB
from tests.waiting import until

HEAD = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"


class Clock:
    """The loop, with another time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._loop = asyncio.get_running_loop()

    def time(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


class FakeTransport(asyncio.Transport):
    def __init__(self, sock: socket.socket) -> None:
        super().__init__({"socket": sock})
        self.unsent = 0
        self.written = b""
        self.is_aborted = False
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


class Rig:
    def __init__(self) -> None:
        self.clock = Clock()
        self.client, ours = socket.socketpair()
        self.transport = FakeTransport(ours)
        # Requests, each until it is answered.
        self.requests: list[asyncio.Queue[dict[str, Any]]] = []
        config = uvicorn.Config(
            self._app, ws="none", lifespan="off", interface="asgi3", log_config=None
        )
        config.load()
        loop: Any = self.clock
        self.connection = GuardedConnection(config, ServerState(), {}, _loop=loop)
        self.connection.connection_made(self.transport)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        """Reads a request to the end of its connection."""
        messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.requests.append(messages)
        while True:
            message = await receive()
            messages.put_nowait(message)
            if message["type"] == "http.disconnect":
                return

    async def come(self, data: bytes) -> None:
        self.connection.data_received(data)
        # The application takes it.
        while self.connection.cycle.body:
            await asyncio.sleep(0)

    def pass_s(self, seconds: float) -> None:
        for _ in range(int(seconds / CHECK_S)):
            self.clock.now += CHECK_S
            self.connection.check(self.clock.now)

    @property
    def is_refused(self) -> bool:
        return self.transport.written.startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_trickles_is_refused_however_much_came_before() -> None:
    rig = Rig()
    await rig.come(HEAD % limits.BODY_BYTES_MAX)
    await rig.come(b"x" * 16 * MIB)
    rig.pass_s(limits.BODY_PAUSE_S_MAX)
    assert not rig.is_refused
    for _ in range(3):
        await rig.come(b"x")
        rig.pass_s(limits.BODY_PAUSE_S_MAX / 2)
    assert rig.is_refused


async def test_a_body_may_not_come_for_ever() -> None:
    rig = Rig()
    await rig.come(HEAD % limits.BODY_BYTES_MAX)
    for _ in range(int(limits.BODY_S_MAX)):
        await rig.come(b"x" * 2 * KIB)
        rig.pass_s(1)
        assert not rig.is_refused
    rig.pass_s(1)
    assert rig.is_refused


async def test_time_in_which_the_door_does_not_read_does_not_count() -> None:
    rig = Rig()
    await rig.come(HEAD % limits.BODY_BYTES_MAX)
    rig.connection.flow.pause_reading()
    rig.pass_s(2 * limits.BODY_S_MAX)
    rig.connection.flow.resume_reading()
    rig.pass_s(limits.BODY_PAUSE_S_MAX - 1)
    assert not rig.is_refused
    rig.pass_s(1)
    assert rig.is_refused


async def test_a_client_that_leaves_is_noticed_though_another_request_waits() -> None:
    rig = Rig()
    await rig.come(HEAD % 0)
    await until(lambda: rig.requests)
    (polled,) = rig.requests
    assert (await polled.get())["type"] == "http.request"
    # It comes while the first is being answered, and is never begun.
    await rig.come(HEAD % 0)
    rig.client.sendall(b"not read")
    rig.pass_s(10)
    assert not rig.transport.is_aborted
    rig.client.close()
    rig.pass_s(1)
    assert rig.transport.is_aborted
    rig.connection.connection_lost(None)
    assert (await polled.get())["type"] == "http.disconnect"
    assert len(rig.requests) == 1


async def test_a_steady_slow_reader_gets_its_answer() -> None:
    rig = Rig()
    rig.transport.unsent = 10 * MIB
    rig.connection.pause_writing()
    per_s = 2 * limits.BYTES_PER_S_MIN
    while rig.transport.unsent > per_s:
        rig.transport.unsent -= per_s
        rig.pass_s(1)
    assert not rig.transport.is_aborted
    rig.pass_s(2 * limits.UNREAD_S_MAX)
    assert rig.transport.is_aborted


async def test_a_reader_that_takes_next_to_nothing_is_cut_off() -> None:
    rig = Rig()
    rig.transport.unsent = 10 * MIB
    rig.connection.pause_writing()
    for _ in range(int(limits.UNREAD_S_MAX) + 1):
        rig.transport.unsent -= 100
        rig.pass_s(1)
    assert rig.transport.is_aborted
