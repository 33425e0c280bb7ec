"""Builds the HTTP door out of its parts."""

import socket
import time
from collections.abc import Collection, Sequence

from penstock.frontdoor.http.app import App
from penstock.frontdoor.http.context import Context
from penstock.frontdoor.http.metrics import HTTP, Metrics
from penstock.frontdoor.http.server import HttpServer
from penstock.frontdoor.remote.parts import Parts


class HttpDoor:
    def __init__(
        self,
        parts: Parts,
        sockets: Sequence[socket.socket],
        *,
        hosts: Collection[str],
        drain_s: float,
    ) -> None:
        self._context = Context(
            broker=parts.broker,
            topics=parts.topics,
            writer=parts.writer,
            reader=parts.reader,
            queueing=parts.queueing,
            locks=parts.locks,
            metrics=Metrics(parts.counts),
            now_ms=lambda: time.time_ns() // 1_000_000,
        )
        self._server = server = HttpServer(App(self._context, hosts), sockets, drain_s)
        parts.counts.connections[HTTP] = lambda: len(server.server_state.connections)

    async def run_until_stopped(self) -> None:
        await self._server.run_until_stopped()
        if self._context.consumers is not None:
            await self._context.consumers.close_all()

    def stop(self) -> None:
        """Accepts no more, and lets what is in flight be answered."""
        self._context.stopping.set()
        self._server.stop()


def make_door(
    parts: Parts, sockets: Sequence[socket.socket], *, hosts: Collection[str], drain_s: float
) -> HttpDoor:
    return HttpDoor(parts, sockets, hosts=hosts, drain_s=drain_s)
