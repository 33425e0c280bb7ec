"""Proves that a port which a test holds is given to nobody else, and serves its server."""

import os
import socket

import pytest

from tests.e2e.conftest import MakeBroker
from tests.e2e.ports import LOOPBACK, PORTS, free_port, free_ports, hold


def is_taken(port: int) -> bool:
    """For everybody who did not agree to share it."""
    with socket.socket() as stranger:
        try:
            stranger.bind((LOOPBACK, port))
        except OSError:
            return True
        return False


def test_a_server_comes_and_goes_on_a_held_port() -> None:
    port, descriptor = hold()
    for _ in range(2):
        assert is_taken(port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, port), timeout=10)
        with socket.create_server((LOOPBACK, port)):
            socket.create_connection((LOOPBACK, port), timeout=10).close()
    os.close(descriptor)


def test_a_held_port_is_not_given_out_again() -> None:
    port, descriptor = hold()
    with pytest.raises(OSError, match="in use"):
        hold(port)
    os.close(descriptor)
    os.close(hold(port)[1])
    found = [free_port() for _ in range(100)]
    assert len(set(found)) == 100
    assert all(port in PORTS and is_taken(port) for port in found)


def test_neighbours_are_held_as_well() -> None:
    first = free_ports((0, 100, 200))
    assert all(is_taken(first + step) for step in (0, 100, 200))


def test_the_port_of_a_broker_that_is_down_waits_for_it(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    port = broker.port
    broker.kill()
    assert is_taken(port)
    broker.start()
    assert broker.port == port
    broker.close()
    assert not is_taken(port)
