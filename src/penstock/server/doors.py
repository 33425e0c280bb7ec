"""Doors that live in a process of their own, seen from the broker (decision 39).

The broker takes their addresses when it starts, and watches them. At the first connection it starts
the process and passes the listening sockets on, so doors that nobody uses cost nothing. The process
gets one end of a pair of sockets, through which it asks the broker. If it dies, the broker watches
again and starts another one at the next connection, later each time it dies soon. It ends with the
broker, however that ends: it notices that its end of the pair was closed.
"""

import asyncio
import errno
import json
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.doors import PASSED_ON
from penstock.broker.services import Services
from penstock.broker.share_coordinators import Peers
from penstock.model.endpoint import Endpoint
from penstock.model.errors import StartRefused
from penstock.model.ids import BrokerId
from penstock.net.call_channel import CallChannel
from penstock.net.listener import BACKLOG, bind_sockets
from penstock.server.scheduling import stand_back

if TYPE_CHECKING:
    from penstock.broker.doors.desk import Desk

STDERR: Final = 2
PROCESS_MODULE: Final = "penstock.frontdoor.process"
# The process of a broker that was killed a moment ago lets go of its sockets within this time.
FREE_WAIT_S: Final = 2.0
FREE_PAUSE_S: Final = 0.05
# How long the process may answer what is in flight when the broker stops.
DRAIN_S: Final = 5.0
# Before a process that died is replaced: the first time, and at most, doubling in between.
RESTART_PAUSE_S_MIN: Final = 0.25
RESTART_PAUSE_S_MAX: Final = 15.0
# One that lived this long did not die of its start.
STEADY_S: Final = 60.0

logger = logging.getLogger(__name__)


async def bind_when_free(endpoint: Endpoint) -> list[socket.socket]:
    """The sockets of a door; waits a moment for the process of a killed broker to end."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + FREE_WAIT_S
    while True:
        try:
            return await bind_sockets(endpoint)
        except StartRefused as refused:
            cause = refused.__cause__
            is_taken = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
            if not is_taken or loop.time() >= deadline:
                raise
            await asyncio.sleep(FREE_PAUSE_S)


async def check_free_soon(endpoint: Endpoint) -> None:
    """Raises StartRefused if nobody could listen there; takes nothing."""
    for sock in await bind_when_free(endpoint):
        sock.close()


class LazyDesk:
    """The desk of this node, built when a door or another node's desk first needs it: its library
    is imported in a thread, so that nobody waits for that on the loop."""

    def __init__(self, *, own: BrokerId, services: Services, peers: Peers) -> None:
        self._own = own
        self._services = services
        self._peers = peers
        self._building: asyncio.Task[Desk] | None = None
        peers.serve(PASSED_ON, self._serve_passed_on)

    async def serve(self, method: str, payload: bytes) -> bytes:
        return await (await self.ready()).serve(method, payload)

    async def _serve_passed_on(self, _: BrokerId, payload: bytes) -> bytes:
        return await (await self.ready()).serve_passed_on(payload)

    async def ready(self) -> "Desk":
        if self._building is None:
            self._building = asyncio.get_running_loop().create_task(self._build())
        # Shielded: others wait for it too.
        return await asyncio.shield(self._building)

    async def _build(self) -> "Desk":
        table = await asyncio.to_thread(import_module, "penstock.broker.doors.table")
        desk: Desk = table.make_desk(self._own, self._services, self._peers)
        return desk


class DoorProcess:
    """The addresses of the doors, and the process behind them while there is one."""

    def __init__(self, desk: LazyDesk, options: Mapping[str, Any]) -> None:
        """`options` go to the process as they are: see frontdoor/process.py."""
        self._desk = desk
        self._options = dict(options)
        self._sockets: dict[str, list[socket.socket]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: CallChannel | None = None
        self._pause_s = RESTART_PAUSE_S_MIN
        self._started_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False

    # Sockets

    async def bind(self, door: str, endpoint: Endpoint) -> Endpoint:
        """Takes the addresses of a door; raises StartRefused. Nobody is let in before `open`."""
        sockets = self._sockets[door] = await bind_when_free(endpoint)
        return Endpoint(endpoint.host, sockets[0].getsockname()[1])

    def open(self) -> None:
        for sock in self._all_sockets():
            sock.listen(BACKLOG)
        self._watch()

    def _all_sockets(self) -> list[socket.socket]:
        return [sock for sockets in self._sockets.values() for sock in sockets]

    def _watch(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        for sock in self._all_sockets():
            loop.add_reader(sock, self._on_connection)

    def _unwatch(self) -> None:
        loop = asyncio.get_running_loop()
        for sock in self._all_sockets():
            loop.remove_reader(sock)

    # The process

    def _on_connection(self) -> None:
        """The connection itself waits in the socket's backlog for the process to accept it."""
        self._unwatch()
        self._run(self._start())

    async def _start(self) -> None:
        own, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        self._started_at = loop.time()
        try:
            # Not on the loop: a fork of a large process takes milliseconds.
            self._process = await asyncio.to_thread(self._spawn, theirs)
            logger.info("the doors' process %d has started", self._process.pid)
            own.setblocking(False)
            self._channel = await CallChannel.open(own, self._desk.serve, self._on_lost)
        except OSError as error:
            own.close()
            logger.error("the doors' process can't be started: %s", error)
            self._watch_later()
        finally:
            theirs.close()

    def _spawn(self, channel: socket.socket) -> "subprocess.Popen[bytes]":
        """In a worker thread."""
        sockets = {door: [sock.fileno() for sock in each] for door, each in self._sockets.items()}
        options = {**self._options, "channel": channel.fileno(), "sockets": sockets}
        inherited = [channel.fileno(), *(fd for fds in sockets.values() for fd in fds)]
        process = subprocess.Popen(
            [sys.executable, "-m", PROCESS_MODULE, json.dumps(options)],
            stdin=subprocess.DEVNULL,
            # The broker's own output is read by scripts.
            stdout=STDERR,
            pass_fds=inherited,
        )
        stand_back(process.pid)
        return process

    def _on_lost(self) -> None:
        self._channel = None
        if not self._is_closing:
            self._run(self._bury())

    async def _bury(self) -> None:
        """The process ended, or lost its place, which ends it."""
        process, self._process = self._process, None
        if process is None:
            return
        code = await asyncio.to_thread(_end, process, 0.0)
        logger.error("the doors' process %d ended with %d", process.pid, code)
        self._watch_later()

    def _watch_later(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._started_at > STEADY_S:
            self._pause_s = RESTART_PAUSE_S_MIN
        if not self._is_closing:
            self._timer = loop.call_later(self._pause_s, self._watch)
        self._pause_s = min(2 * self._pause_s, RESTART_PAUSE_S_MAX)

    async def close(self) -> None:
        """Lets the process answer what is in flight, and ends it."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        self._unwatch()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for sock in self._all_sockets():
            sock.close()
        self._sockets.clear()
        if self._process is not None:
            await asyncio.to_thread(_end, self._process, DRAIN_S)
            self._process = None
        if self._channel is not None:
            self._channel.close()

    def _run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            logger.error("keeping the doors' process failed, which is a bug", exc_info=bug)


def _end(process: "subprocess.Popen[bytes]", patience_s: float) -> int:
    """In a worker thread: asks the process to end, then ends it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(patience_s or FREE_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
