"""Proves that a port which a test holds is given to nobody else, and waits for its server."""

import socket

from tests.e2e.conftest import MakeBroker
from tests.e2e.ports import LOOPBACK, free_port, free_ports


def is_taken(port: int) -> bool:
    """For everybody who did not agree to share it."""
    with socket.socket() as stranger:
        try:
            stranger.bind((LOOPBACK, port))
        except OSError:
            return True
        return False


def test_a_port_and_its_neighbours_are_given_once() -> None:
    first = free_ports((100, 200))
    found = [first, first + 100, first + 200, *(free_port() for _ in range(100))]
    assert len(set(found)) == 103
    assert all(is_taken(port) for port in found)


def test_the_port_of_a_broker_that_is_down_waits_for_it(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    port = broker.port
    broker.kill()
    assert is_taken(port)
    broker.start()
    assert broker.port == port
    broker.close()
    assert not is_taken(port)
