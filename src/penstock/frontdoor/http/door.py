"""Builds the HTTP door out of its parts."""

import asyncio
import socket
import time
from collections.abc import Collection, Sequence

from penstock.frontdoor.http.app import App
from penstock.frontdoor.http.context import Context
from penstock.frontdoor.http.metrics import HTTP, Metrics
from penstock.frontdoor.http.server import HttpServer
from penstock.frontdoor.remote.broker import Broker
from penstock.frontdoor.remote.publishing import Publisher
from penstock.frontdoor.remote.queueing import Queueing
from penstock.frontdoor.remote.reading import Reader
from penstock.frontdoor.remote.topics import Topics


def make_context(broker: Broker, publisher: Publisher, reader: Reader) -> Context:
    return Context(
        broker=broker,
        topics=Topics(broker, asyncio.get_running_loop().time),
        publisher=publisher,
        reader=reader,
        metrics=Metrics(),
        queueing=Queueing(broker),
        now_ms=lambda: time.time_ns() // 1_000_000,
    )


def make_server(
    context: Context, sockets: Sequence[socket.socket], hosts: Collection[str], drain_s: float
) -> HttpServer:
    server = HttpServer(App(context, hosts), sockets, drain_s)
    context.metrics.connections[HTTP] = lambda: len(server.server_state.connections)
    return server
