"""A process around a node: settings, logs, signals, memory, and the event loop."""

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from threading import Thread
from typing import Any

from penstock.cluster.config_definitions import validate_static
from penstock.config import Settings, SettingsError
from penstock.model.endpoint import Endpoint
from penstock.model.errors import StartRefused
from penstock.model.limits import MIB
from penstock.net.listener import check_free
from penstock.observe.logs import set_up_logs
from penstock.server.doors import check_free_soon
from penstock.server.node import Node
from penstock.server.scheduling import be_prompt
from penstock.server.service_manager import ServiceManager

# Parameters of mallopt(3), by their numbers in glibc.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# The largest that glibc takes on 64-bit machines.
KEPT_BUFFER_BYTES_MAX = 32 * MIB
# Requests make many short-lived objects and no cycles, and a start makes many that stay: the
# default of 700 looks far too often. Of a start with thousands of partitions it takes a third, and
# with as many as are right later still a tenth.
GC_THRESHOLD = 20_000
GC_THRESHOLD_AT_START = 500_000
# How long a disk thread whose sync is done waits for the event loop's turn to end. A sync takes
# 0.2 ms, so a longer wait is what a write costs: with Python's default of 5 ms and 500 busy
# partitions, acknowledgements took a hundred times as long, with 0.5 ms twice as long.
THREAD_SWITCH_S = 0.0001
# How often a node that stops asks its disk for a sign of life, and how long it waits for one. What
# is in flight is answered by then, and leaderships are handed over.
DISK_ASKED_S = 1.0
DISK_ANSWERS_S_MAX = 15.0
EXIT_CODE_DISK_HANGS = 1

logger = logging.getLogger(__name__)


def check_settings(settings: Settings) -> None:
    """Raises SettingsError for a broker setting that the cluster does not know or can't use."""
    try:
        validate_static(settings.broker)
    except StartRefused as refused:
        raise SettingsError(str(refused)) from None


def run(settings: Settings) -> int:
    """Runs a node until SIGTERM or Ctrl-C; returns the exit code of the process."""
    check_settings(settings)
    set_up_logs(log_format=settings.log_format, level=settings.log_level)
    _keep_large_buffers()
    # Before the first thread: each inherits it.
    be_prompt()
    gc.set_threshold(GC_THRESHOLD_AT_START)
    sys.setswitchinterval(THREAD_SWITCH_S)
    manager = ServiceManager.of(os.environ)
    try:
        _run_in_loop(_serve(settings, manager))
    except StartRefused as refused:
        print(f"penstock: {refused}", file=sys.stderr)
        return 1
    return 0


def _keep_large_buffers() -> None:
    """Lets the C library reuse the memory of large batches instead of giving it back each time.

    Fresh pages for every batch cost more than everything else that a node does with it. Elsewhere
    than on glibc there is nothing to set.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, KEPT_BUFFER_BYTES_MAX)
        mallopt(_M_TRIM_THRESHOLD, 4 * KEPT_BUFFER_BYTES_MAX)


async def _serve(settings: Settings, manager: ServiceManager) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # Before anything is written: a refused start leaves no directory behind.
    await _check("kafka", check_free(settings.kafka))
    if settings.opens_peer_door():
        await _check("peer", check_free(settings.peer))
    for door, endpoint in settings.other_doors().items():
        await _check(door, check_free_soon(endpoint))
    node = Node(settings)
    bound = await _started(node, stop)
    if bound is None:
        logger.info("stopped before it was ready")
        return
    # Scripts wait for this line, so it is the only one on stdout.
    others = "".join(f" {door}={endpoint}" for door, endpoint in node.doors.items())
    if node.peer is not None:
        others += f" peer={node.peer}"
    line = f"penstock node {settings.node} ready: kafka={bound}{others} data={settings.data_dir}"
    print(_for_people(line) if sys.stdout.isatty() else line, flush=True)
    manager.ready(f"Node {settings.node} serves Kafka clients at {bound}.")
    # What was built so far lives as long as the process: no collection need look at it again, and
    # one over thousands of partitions would hold up every client.
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    await stop.wait()
    logger.info("stopping: answering the requests in flight")
    manager.stopping()
    Thread(target=_end_if_the_disk_hangs, args=(settings.data_dir,), daemon=True).start()
    await node.stop()
    logger.info("stopped")


async def _check(setting: str, checking: Coroutine[Any, Any, None]) -> None:
    """Says how to choose another address, if that is the trouble."""
    try:
        await checking
    except StartRefused as refused:
        cause = refused.__cause__
        if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
            hint = f"Choose another one with --{setting} HOST:PORT."
            raise StartRefused(f"{refused} {hint}") from cause
        raise


def _for_people(line: str) -> str:
    """Broken where it may be, so that a terminal does not break addresses."""
    import shutil
    import textwrap

    width = shutil.get_terminal_size().columns
    return textwrap.fill(
        line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _end_if_the_disk_hangs(directory: Path) -> None:
    """In a thread of its own, until the process ends: nobody can wait for threads that hang, nor
    for what they were to write. The next start recovers what was acknowledged."""
    while _answers(directory):
        time.sleep(DISK_ASKED_S)
    logger.error("stopped without a last checkpoint: the disk does not answer")
    os._exit(EXIT_CODE_DISK_HANGS)


def _answers(directory: Path) -> bool:
    def ask() -> None:
        with contextlib.suppress(OSError):
            os.utime(directory)
            descriptor = os.open(directory, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(DISK_ANSWERS_S_MAX)
    return not asking.is_alive()


async def _started(node: Node, stop: asyncio.Event) -> Endpoint | None:
    """None if the node was asked to stop first: it may wait for others as long as it takes."""
    starting = asyncio.ensure_future(node.start())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
        if starting.cancelled():
            return None
    stopping.cancel()
    return starting.result()


def _run_in_loop(main: Coroutine[Any, Any, None]) -> None:
    """uvloop saves CPU on every request; asyncio's own loop does the same work without it."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    try:
        import uvloop
    except ImportError:
        logger.debug("uvloop is not installed")
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)
