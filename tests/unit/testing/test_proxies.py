"""The network that can be cut: what is sent into a cut arrives after it, and one way at a time."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from penstock.client.free_ports import HeldPorts
from penstock.model.endpoint import Endpoint
from penstock.testing.proxies import Proxies

QUIET_S = 0.2
# How long anything may take on a machine that is busy with other things.
SOON_S = 60.0


class Wire:
    """Node 1 dials node 2 through a proxy; both ends are in the test's hands."""

    def __init__(self, ends: ExitStack) -> None:
        (at,) = ends.enter_context(HeldPorts()).take(1)
        self.at = Endpoint("127.0.0.1", at)
        self.listener = ends.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.listener.settimeout(SOON_S)
        self.proxies = ends.enter_context(Proxies())
        self.proxies.add([1], 2, self.at, Endpoint(*self.listener.getsockname()))
        self.proxies.open(2)
        self._ends = ends

    def dial(self) -> socket.socket:
        return self._ends.enter_context(socket.create_connection(self.at, SOON_S))

    def accept(self) -> socket.socket:
        accepted, _ = self.listener.accept()
        accepted.settimeout(SOON_S)
        return self._ends.enter_context(accepted)


@pytest.fixture
def wire() -> Iterator[Wire]:
    with ExitStack() as ends:
        yield Wire(ends)


@contextmanager
def in_vain(receiver: socket.socket) -> Iterator[None]:
    """Nothing may arrive at `receiver` because of what is done here."""
    yield
    receiver.settimeout(QUIET_S)
    with pytest.raises(TimeoutError):
        receiver.recv(1)
    receiver.settimeout(SOON_S)


def test_bytes_and_the_end_pass_both_ways(wire: Wire) -> None:
    one = wire.dial()
    one.sendall(b"question")
    two = wire.accept()
    assert two.recv(100) == b"question"
    two.sendall(b"answer")
    assert one.recv(100) == b"answer"
    two.sendall(b"last words")
    two.close()
    assert one.recv(100) == b"last words"
    assert one.recv(100) == b""


def test_what_is_sent_into_a_cut_arrives_when_it_heals(wire: Wire) -> None:
    one, two = wire.dial(), wire.accept()
    wire.proxies.cut([(1, 2), (2, 1)])
    with in_vain(two):
        one.sendall(b"to two")
    with in_vain(one):
        two.sendall(b"to one")
    wire.proxies.cut([])
    assert (two.recv(100), one.recv(100)) == (b"to two", b"to one")


def test_one_direction_can_be_cut_alone(wire: Wire) -> None:
    one, two = wire.dial(), wire.accept()
    wire.proxies.cut([(2, 1)])
    one.sendall(b"heard")
    assert two.recv(100) == b"heard"
    with in_vain(one):
        two.sendall(b"unheard")
    # Another cut replaces this one.
    wire.proxies.cut([(1, 2)])
    assert one.recv(100) == b"unheard"


def test_the_end_of_a_process_is_not_heard_through_a_cut(wire: Wire) -> None:
    one, two = wire.dial(), wire.accept()
    wire.proxies.cut([(1, 2), (2, 1)])
    with in_vain(one):
        two.close()
    wire.proxies.cut([])
    assert one.recv(1) == b""


@pytest.mark.parametrize("direction", [(1, 2), (2, 1)])
def test_no_connection_is_made_through_a_cut(wire: Wire, direction: tuple[int, int]) -> None:
    wire.proxies.cut([direction])
    one = wire.dial()
    one.sendall(b"hello")
    wire.listener.settimeout(QUIET_S)
    with pytest.raises(TimeoutError):
        wire.listener.accept()
    wire.listener.settimeout(SOON_S)
    wire.proxies.cut([])
    assert wire.accept().recv(100) == b"hello"


def test_a_node_that_is_down_refuses_and_can_come_back(wire: Wire) -> None:
    one, two = wire.dial(), wire.accept()
    wire.proxies.refuse(2)
    with pytest.raises(ConnectionRefusedError):
        wire.dial()
    # What stands already is not touched.
    one.sendall(b"still here")
    assert two.recv(100) == b"still here"
    wire.proxies.open(2)
    wire.dial()
    wire.accept()


def test_a_proxy_before_nobody_breaks_the_connection(wire: Wire) -> None:
    wire.listener.close()
    one = wire.dial()
    # The proxy aborts, which its client may hear as an end or as a reset.
    with suppress(ConnectionResetError):
        assert one.recv(1) == b""
