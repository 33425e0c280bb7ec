"""Finds ports for nodes whose addresses others must know before they start, and keeps them.

They lie below the range from which systems give ports to outgoing connections. A port from that
range can be taken by somebody's connection while its node is down, and a client that keeps
dialling a dead node there may at last be connected to itself.
"""

import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from random import SystemRandom
from types import TracebackType
from typing import Self

from penstock.client.errors import ClientError

# Linux gives outgoing connections ports from 32768 on, macOS from 49152 on.
PORT_FIRST = 14_000
PORT_LAST = 32_000
TRIES_MAX = 1_000
# Whether a server may bind a port that we have bound ourselves, and do not listen on.
CAN_SHARE = sys.platform == "linux"


class HeldPorts:
    """Ports that nobody else is given here, even while their listener is down.

    We stay bound to each ourselves. We never listen, so clients of a server that is down are
    refused as ever, and a server that asks for exactly this port with SO_REUSEADDR, as servers do,
    gets it. Where the system does not allow that, a port can be taken before its server starts.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self._random = SystemRandom()
        self._given: set[int] = set()
        self._sockets = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._given.clear()
        self._sockets.close()

    def take(self, count: int) -> Sequence[int]:
        """As many ports that nobody has, each another one than those taken before."""
        found: list[int] = []
        for _ in range(TRIES_MAX):
            if len(found) == count:
                return found
            port = self._random.randrange(PORT_FIRST, PORT_LAST)
            if self.hold(port):
                found.append(port)
        raise ClientError(f"There are no {count} free ports on {self._host}.")

    def hold(self, port: int) -> bool:
        """Take exactly this one, unless somebody has it."""
        if port in self._given:
            return False
        with socket.socket() as holder:
            try:
                # Without SO_REUSEADDR yet, or it would succeed where others hold a port like this.
                holder.bind((self._host, port))
            except OSError:
                return False
            if CAN_SHARE:
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._sockets.enter_context(holder.dup())
        self._given.add(port)
        return True


def free_ports(count: int, host: str = "127.0.0.1") -> Sequence[int]:
    """As many different ports that nobody has just now; in a moment that may have changed."""
    with HeldPorts(host) as held:
        return held.take(count)
