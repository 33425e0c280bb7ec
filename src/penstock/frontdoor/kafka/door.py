"""The Kafka door: accepts clients, keeps watch over their connections, and drains at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from penstock.frontdoor.kafka.api_table import APIS
from penstock.frontdoor.kafka.connection import DoorParts, KafkaConnection
from penstock.frontdoor.kafka.fetch_sessions import FetchSessions
from penstock.frontdoor.kafka.handlers import api_versions
from penstock.frontdoor.kafka.routes import make_routes
from penstock.frontdoor.kafka.shares import Shares
from penstock.frontdoor.kafka.telemetry import Telemetry
from penstock.net import socket_options
from penstock.net.frame_connection import Surroundings
from penstock.net.listener import Listener
from penstock.net.memory_budget import MemoryBudget
from penstock.net.occasional_log import OccasionalLog
from penstock.net.receive_buffer import BASE_CAPACITY, SharedMemory
from penstock.protocol.kafka.codec import encode

if TYPE_CHECKING:
    import socket

    from penstock.broker.services import Services
    from penstock.frontdoor.kafka.api import Api
    from penstock.model.clock import Clock
    from penstock.model.endpoint import Endpoint
    from penstock.model.limits import Limits
    from penstock.observe.node_counters import NodeCounters
    from penstock.protocol.kafka.api_keys import ApiKey

CHECK_SECONDS_MAX: Final = 3.0
# How long a drain lets calls end by themselves: with other nodes gone, some never would.
PATIENCE_SECONDS: Final = 2.0
# After a drain ran out of time, cancelled calls get this long to clean up.
_CLEAN_UP_SECONDS: Final = 1.0

logger = logging.getLogger(__name__)


class KafkaDoor:
    """Listener, connections, one coarse timer for all of them."""

    def __init__(
        self,
        services: Services,
        limits: Limits,
        clock: Clock,
        *,
        apis: Mapping[ApiKey, Api] = APIS,
        counters: NodeCounters | None = None,
    ) -> None:
        self._counters = counters
        self._services = services
        self._limits = limits
        self._clock = clock
        self._apis = apis
        self._log = OccasionalLog(clock)
        self.budget = MemoryBudget(
            bytes_max=limits.request_memory_bytes_max, reserve_bytes=BASE_CAPACITY
        )
        self._listener = Listener(self.serve, log=self._log)
        self._ids = count(1)
        self._connections: dict[int, KafkaConnection] = {}
        self._pressed: list[KafkaConnection] = []
        self._parts: DoorParts | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Future[None] | None = None

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self, host: str, port: int) -> Endpoint:
        """Listens; raises StartRefused if that can't be. Port 0 picks a free one."""
        bound = await self.bind(host, port)
        self.open()
        return bound

    async def bind(self, host: str, port: int) -> Endpoint:
        """Takes the address, so that others can learn it; nobody is let in before `open`."""
        return await self._listener.bind(host, port)

    def open(self) -> None:
        self._listener.listen()

    def serve(self, sock: socket.socket, peer: Endpoint) -> None:
        """Takes over a connected socket."""
        if len(self._connections) >= self._limits.connections_max:
            self._log.warning(
                logger, "full", "refused %s: there are %d connections", peer, self.connections
            )
            sock.close()
            return
        try:
            socket_options.prepare(sock)
        except OSError:
            # The peer left before it was served.
            sock.close()
            return
        connection_id = next(self._ids)
        connection = KafkaConnection(connection_id, sock, peer, self._shared_parts())
        self._connections[connection_id] = connection
        if self._counters is not None:
            self._counters.connections += 1
            self._counters.connections_opened += 1
        if self._timer is None:
            self._check_later()

    async def drain(self, timeout_s: float) -> None:
        """Accepts no more, answers what is in flight, sends it, and closes; then by force."""
        self._listener.close()
        if self._connections:
            self._all_closed = asyncio.get_running_loop().create_future()
            for connection in list(self._connections.values()):
                connection.drain()
            patience_s = min(PATIENCE_SECONDS, timeout_s)
            await asyncio.wait([self._all_closed], timeout=patience_s)
            for connection in list(self._connections.values()):
                connection.give_up()
            await asyncio.wait([self._all_closed], timeout=timeout_s - patience_s)
        await self._close_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def check(self) -> None:
        """Lets each connection see whether it is overdue."""
        now = self._clock.monotonic()
        for connection in list(self._connections.values()):
            connection.check(now)

    async def _close_all(self) -> None:
        tasks: list[asyncio.Task[Any]] = []
        for connection in list(self._connections.values()):
            tasks += connection.tasks
            connection.close()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLEAN_UP_SECONDS)
        if self._parts is not None:
            await self._parts.shares.close()

    def _shared_parts(self) -> DoorParts:
        if self._parts is None:
            self._parts = DoorParts(
                surroundings=Surroundings(
                    loop=asyncio.get_running_loop(),
                    clock=self._clock,
                    limits=self._limits,
                    budget=self.budget,
                    memory=SharedMemory(),
                    log=self._log,
                ),
                services=self._services,
                fetch_sessions=FetchSessions(
                    make_reader=self._services.fetch.reader,
                    clock=self._clock,
                    sessions_max=self._limits.fetch_sessions_max,
                ),
                shares=Shares(self._services.queues, sessions_max=self._limits.share_sessions_max),
                telemetry=Telemetry(self._services.client_metrics),
                routes=make_routes(self._apis.values(), self._counters),
                unsupported_body=encode(api_versions.unsupported_version(self._apis.values()), 0),
                on_closed=self._on_closed,
                soon=self._services.partitions.soon,
                await_relief=self._await_relief,
            )
        return self._parts

    def _on_closed(self, connection: KafkaConnection) -> None:
        del self._connections[connection.id]
        if self._counters is not None:
            self._counters.connections -= 1
        if not self._connections and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)

    # Unflushed bytes over their limit

    def _await_relief(self, connection: KafkaConnection) -> None:
        self._pressed.append(connection)
        if len(self._pressed) == 1:
            self._services.pressure.on_relief(self._relieve)

    def _relieve(self) -> None:
        pressed, self._pressed = self._pressed, []
        for connection in pressed:
            connection.relieve()

    # The timer

    def _check_later(self) -> None:
        shortest = min(self._limits.frame_arrival_ms_max, self._limits.connection_idle_ms_max)
        seconds = min(shortest / 1000 / 4, CHECK_SECONDS_MAX)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.check()
        if self._connections:
            self._check_later()
