"""Ports for the servers of tests, each given once and held as long as this process runs."""

from collections.abc import Sequence

from penstock.client.free_ports import HeldPorts

LOOPBACK = "127.0.0.1"
ATTEMPTS_MAX = 1_000
HELD = HeldPorts(LOOPBACK)


def free_port() -> int:
    (port,) = HELD.take(1)
    return port


def free_ports(steps: Sequence[int]) -> int:
    """One that is free together with those at these distances from it, and stays so."""
    for _ in range(ATTEMPTS_MAX):
        first = free_port()
        if all(HELD.hold(first + step) for step in steps):
            return first
    raise AssertionError(f"no free ports at the distances {steps}")
