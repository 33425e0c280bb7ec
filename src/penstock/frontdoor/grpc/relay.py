"""Brings connections to gRPC's library, which can't take over a socket that listens already.

The library listens on a Unix socket. Each connection that a client makes is joined
with one to there, and bytes go to and fro. So the broker may hold the port from its start, no
connection is lost while the door opens, and this process decides how many there may be and which
one has to go. It costs about a tenth of the processor's time of a small call (decision 43).
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, cast

from penstock.frontdoor.grpc import limits

# Bytes of one direction that the other end has not taken yet, from which on no more are read.
UNSENT_BYTES_HIGH: Final = 256 * 1024
ACCEPT_PAUSE_S: Final = 0.1

logger = logging.getLogger(__name__)


class _End(asyncio.Protocol):
    """One of two connections that are joined."""

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._other: _End | None = None
        # What came before the other end was there.
        self._early: list[bytes] = []
        self._is_paused = False
        self.received_bytes = 0

    def join(self, other: "_End") -> None:
        self._other = other
        for data in self._early:
            other.write(data)
        self._early.clear()
        self._set_reading(not other._is_paused)

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is one too, but does not say so.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        if self._other is None:
            self._early.append(data)
            self._set_reading(False)
        else:
            self._other.write(data)

    def _set_reading(self, is_reading: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if is_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._is_paused = True
        if self._other is not None:
            self._other._set_reading(False)

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._other is not None:
            self._other._set_reading(True)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._other is not None and self._other._transport is not None:
            # What is on its way there may still be sent: an error, say.
            self._other._transport.close()
        self._on_lost()


class Relay:
    """Accepts on the given sockets until `close`."""

    def __init__(
        self, sockets: Sequence[socket.socket], inner: str, memory_bytes: Callable[[], int]
    ) -> None:
        """`inner` is the address of the library's Unix socket."""
        self._sockets = sockets
        self._inner = inner
        self._memory_bytes = memory_bytes
        self._loop = asyncio.get_running_loop()
        # Each client's end, with what it had sent when the memory was last within its limit.
        self._clients: dict[_End, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        for sock in self._sockets:
            sock.setblocking(False)
            self._run(self._accept(sock))
        self._check_memory()

    def close(self) -> None:
        """Accepts no more; connections go on until one of their ends closes."""
        for task in self._tasks:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(listening)
            except OSError as error:
                # Out of descriptors, most likely; the client waits in the backlog.
                logger.warning("a connection can't be accepted: %s", error)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            if len(self._clients) >= limits.CONNECTIONS_MAX:
                accepted.close()
                continue
            self._run(self._join(accepted))

    async def _join(self, accepted: socket.socket) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = _End(lambda: self._forget(client))
        self._clients[client] = 0
        try:
            await self._loop.connect_accepted_socket(lambda: client, accepted)
            server = _End(lambda: None)
            inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            inner.setblocking(False)
            # uvloop itself can't connect to an address that is not a path.
            await self._loop.sock_connect(inner, self._inner)
            await self._loop.create_unix_connection(lambda: server, sock=inner)
        except OSError as error:
            logger.warning("a connection can't be served: %s", error)
            self._forget(client)
            client.abort()
            return
        server.join(client)
        client.join(server)

    def _forget(self, client: _End) -> None:
        self._clients.pop(client, None)

    # Memory

    def _check_memory(self) -> None:
        """Messages that are not whole yet are held by the library, which knows no bound for all of
        them. If they take too much, who has sent most since has to go. Nobody, if all have sent
        little: then something else takes the memory."""
        self._timer = self._loop.call_later(limits.MEMORY_CHECK_S, self._check_memory)
        if self._memory_bytes() <= limits.MEMORY_BYTES_MAX:
            for client in self._clients:
                self._clients[client] = client.received_bytes
            return
        sent = {client: client.received_bytes - seen for client, seen in self._clients.items()}
        most = max(sent, key=lambda client: sent[client], default=None)
        if most is None or sent[most] < limits.GREEDY_BYTES_MIN:
            return
        logger.warning(
            "this process takes more than %d MiB: closing the connection that sent %d bytes",
            limits.MEMORY_BYTES_MAX >> 20,
            sent[most],
        )
        most.abort()
