"""An address where nobody answers is noticed at once."""

import socket
from collections.abc import Iterator

import pytest

from penstock.client.connection import check_reachable, librdkafka_settings
from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.client.free_ports import HeldPorts


@pytest.fixture
def dead() -> Iterator[str]:
    """An address where nobody listens, and nobody will."""
    with HeldPorts() as ports:
        yield f"127.0.0.1:{ports.take(1)[0]}"


def test_a_listener_is_reachable_even_behind_a_dead_address(dead: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        alive = f"127.0.0.1:{server.getsockname()[1]}"
        check_reachable(alive)
        check_reachable(f"{dead}, {alive}")


def test_a_refused_connection_is_told_with_its_reason(dead: str) -> None:
    with pytest.raises(BrokerUnreachable) as caught:
        check_reachable(dead)
    assert str(caught.value) == f"No broker answers at {dead}: connection refused."


@pytest.mark.parametrize("address", ["nonsense", "host:", "host:x", "host:70000"])
def test_nonsense_is_no_address(address: str) -> None:
    with pytest.raises(ClientError, match="not HOST:PORT"):
        check_reachable(address)


def test_the_users_options_win() -> None:
    settings = librdkafka_settings("h:1", {"client.id": "mine"})
    assert (settings["bootstrap.servers"], settings["client.id"]) == ("h:1", "mine")
