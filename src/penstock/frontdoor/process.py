"""The process of the doors that are not Kafka's: `python -m penstock.frontdoor.process OPTIONS`.

The broker starts it (server/doors.py), with the listening sockets and one end of the channel as
inherited descriptors. Each door is imported and opened when somebody first connects to it, so that
users of one do not pay for the libraries of another. The process ends when it is asked to, and at
once when the channel closes: without the broker it can answer nothing, and it holds sockets that
the next broker needs.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from importlib import import_module
from typing import Final, Protocol

import msgspec
import uvloop

from penstock.frontdoor.remote.parts import Parts
from penstock.net.call_channel import CallChannel
from penstock.observe.logs import set_up_logs

# Less than the broker waits for this process.
DRAIN_S: Final = 3.0
# Requests make many short-lived objects and no cycles.
GC_THRESHOLD: Final = 20_000
EXIT_CODE_ALONE: Final = 3
# Each has `make_door`, which returns a Door.
MODULES: Final = {
    "grpc": "penstock.frontdoor.grpc.door",
    "http": "penstock.frontdoor.http.door",
}

logger = logging.getLogger(__name__)


class Options(msgspec.Struct, kw_only=True):
    """What the broker says about itself and this process."""

    node: int
    # Descriptors: of the channel, and of the listening sockets by door.
    channel: int
    sockets: dict[str, list[int]]
    hosts: list[str]
    log_format: str
    log_level: str


class Door(Protocol):
    """A listener and its protocol, once somebody has connected."""

    async def run_until_stopped(self) -> None: ...

    def stop(self) -> None:
        """Accepts no more; what is in flight may be answered for `DRAIN_S`."""


def main(arguments: list[str]) -> int:
    options = msgspec.json.decode(arguments[0], type=Options)
    set_up_logs(log_format=options.log_format, level=options.log_level)
    _log_warnings_of("uvicorn")
    gc.set_threshold(GC_THRESHOLD)
    # Ctrl-C reaches this process too, but it is the broker that decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options))
    return 0


def _log_warnings_of(library: str) -> None:
    """In the same form as everything else."""
    theirs = logging.getLogger(library)
    theirs.handlers = logging.getLogger("penstock").handlers
    theirs.setLevel(logging.WARNING)
    theirs.propagate = False


async def _serve(options: Options) -> None:
    channel = await CallChannel.open(
        socket.socket(fileno=options.channel), on_closed=_end_without_broker
    )
    doors = _Doors(options, Parts.on(channel))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, doors.stop)
    doors.watch()
    await doors.run_until_stopped()


class _Doors:
    """All doors of this process: those that wait for a first connection, and those that run."""

    def __init__(self, options: Options, parts: Parts) -> None:
        self._options = options
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._waiting = {
            name: [socket.socket(fileno=fd) for fd in fds] for name, fds in options.sockets.items()
        }
        self._open: list[Door] = []
        self._running: set[asyncio.Task[None]] = set()
        # Done when the process is to end, with the bug if that is why.
        self._ending: asyncio.Future[None] = self._loop.create_future()

    def watch(self) -> None:
        for name, sockets in self._waiting.items():
            for sock in sockets:
                self._loop.add_reader(sock, self._on_connection, name)

    def _unwatch(self, name: str) -> list[socket.socket]:
        sockets = self._waiting.pop(name)
        for sock in sockets:
            self._loop.remove_reader(sock)
        return sockets

    def _on_connection(self, name: str) -> None:
        task = self._loop.create_task(self._run(name, self._unwatch(name)))
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def _run(self, name: str, sockets: list[socket.socket]) -> None:
        # In a thread: another door may be at work.
        module = await asyncio.to_thread(import_module, MODULES[name])
        if self._ending.done():
            return
        hosts = self._options.hosts
        door: Door = module.make_door(self._parts, sockets, hosts=hosts, drain_s=DRAIN_S)
        self._open.append(door)
        gc.freeze()
        logger.info("the %s door of node %d is open", name, self._options.node)
        await door.run_until_stopped()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        bug = None if task.cancelled() else task.exception()
        if bug is not None and not self._ending.done():
            self._ending.set_exception(bug)

    def stop(self) -> None:
        for name in list(self._waiting):
            self._unwatch(name)
        for door in self._open:
            door.stop()
        if not self._ending.done():
            self._ending.set_result(None)

    async def run_until_stopped(self) -> None:
        await self._ending
        while self._running:
            await asyncio.wait(self._running)


def _end_without_broker() -> None:
    logger.info("the broker is gone")
    sys.stderr.flush()
    os._exit(EXIT_CODE_ALONE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
