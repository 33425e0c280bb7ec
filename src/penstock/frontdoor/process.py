"""The process of the doors that are not Kafka's: `python -m penstock.frontdoor.process OPTIONS`.

The broker starts it (server/doors.py), with the listening sockets and one end of the channel as
inherited descriptors. It ends when it is asked to, and at once when the channel closes: without
the broker it can answer nothing, and it holds sockets that the next broker needs.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from typing import Final

import msgspec
import uvloop

from penstock.frontdoor.http import door
from penstock.frontdoor.remote.broker import Broker
from penstock.frontdoor.remote.publishing import Publisher
from penstock.frontdoor.remote.reading import Reader
from penstock.net.call_channel import CallChannel
from penstock.observe.logs import set_up_logs

# Less than the broker waits for this process.
DRAIN_S: Final = 3.0
# Requests make many short-lived objects and no cycles.
GC_THRESHOLD: Final = 20_000
EXIT_CODE_ALONE: Final = 3

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
    sockets = [socket.socket(fileno=fd) for fd in options.sockets.get("http", ())]
    channel = await CallChannel.open(
        socket.socket(fileno=options.channel), on_closed=_end_without_broker
    )
    broker = Broker(channel)
    context = door.make_context(broker, Publisher(broker), Reader(broker))
    server = door.make_server(context, sockets, options.hosts, DRAIN_S)

    def stop() -> None:
        context.stop()
        server.stop()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    gc.freeze()
    logger.info("the HTTP door of node %d is open", options.node)
    await server.run_until_stopped()


def _end_without_broker() -> None:
    logger.info("the broker is gone")
    sys.stderr.flush()
    os._exit(EXIT_CODE_ALONE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
