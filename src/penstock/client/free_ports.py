"""Finds ports for nodes whose addresses others must know before they start.

They lie below the range from which systems give ports to outgoing connections. A port from that
range can be taken by somebody's connection while its node is down, and a client that keeps
dialling a dead node there may at last be connected to itself.
"""

import socket
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from random import SystemRandom

from penstock.client.errors import ClientError

# Linux gives outgoing connections ports from 32768 on, macOS from 49152 on.
PORT_FIRST = 14_000
PORT_LAST = 32_000
TRIES_MAX = 1_000


def free_ports(
    count: int, host: str = "127.0.0.1", *, but_not: Collection[int] = ()
) -> Sequence[int]:
    """As many different ports that nobody listens on just now.

    `but_not` are ports that were given out before, to somebody who does not listen yet.
    """
    random = SystemRandom()
    found: list[int] = []
    # All are held until the last is found, so that none is found twice.
    with ExitStack() as held:
        for _ in range(TRIES_MAX):
            if len(found) == count:
                return found
            port = random.randrange(PORT_FIRST, PORT_LAST)
            if port in but_not:
                continue
            attempt = held.enter_context(socket.socket())
            try:
                attempt.bind((host, port))
            except OSError:
                continue
            found.append(port)
    raise ClientError(f"There are no {count} free ports on {host}.")
