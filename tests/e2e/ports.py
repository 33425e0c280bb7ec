"""Ports for the servers of tests, held so that nobody else gets them while a server is down.

The system gives a port that nobody is bound to, to whoever asks for any: to the server of another
test between our choosing it and our server's start, or to anybody's outgoing connection between a
kill and the restart. So the tests stay bound to it themselves. They never listen, and let those
share the port who ask for exactly this one with SO_REUSEADDR, as servers do: connections are
refused while the server is down, and nobody is given the port by chance.
"""

import os
import random
import socket
from collections.abc import Sequence

LOOPBACK = "127.0.0.1"
# Below the range from which the system takes ports for outgoing connections, whose owners do not
# share them: neighbours of these ports are most likely free too.
PORTS = range(20_000, 32_000)
ATTEMPTS_MAX = 1_000
# Whoever seeds the common generator would draw the same ports in every worker.
CHANCE = random.SystemRandom()


def hold(port: int = 0) -> tuple[int, int]:
    """The port, or any, and the file descriptor that holds it; OSError if somebody has it."""
    with socket.socket() as holder:
        # Without SO_REUSEADDR, so that this fails where others hold a port in the same way.
        holder.bind((LOOPBACK, port))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return holder.getsockname()[1], holder.detach()


def free_port() -> int:
    """One that no other test is given as long as this process runs."""
    return free_ports((0,))


def free_ports(steps: Sequence[int]) -> int:
    """One that is free together with those at these distances from it, and stays so."""
    for _ in range(ATTEMPTS_MAX):
        first = CHANCE.choice(PORTS)
        if _hold_all([first + step for step in steps]):
            return first
    raise AssertionError(f"no free ports at the distances {steps}")


def _hold_all(ports: Sequence[int]) -> bool:
    """All of them or none."""
    held: list[int] = []
    for port in ports:
        try:
            held.append(hold(port)[1])
        except OSError:
            for descriptor in held:
                os.close(descriptor)
            return False
    return True
