"""Ports are given out once, and a held one is nobody else's while its server is down."""

import socket
import sys

import pytest

from penstock.client import free_ports as module
from penstock.client.errors import ClientError
from penstock.client.free_ports import PORT_FIRST, PORT_LAST, HeldPorts, free_ports

HOST = "127.0.0.1"

only_on_linux = pytest.mark.skipif(sys.platform != "linux", reason="nowhere else can ports be held")


def can_bind(port: int) -> bool:
    with socket.socket() as attempt:
        try:
            attempt.bind((HOST, port))
        except OSError:
            return False
        return True


def test_free_ports_differ_and_stay_clear_of_outgoing_connections() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(PORT_FIRST <= port < PORT_LAST for port in ports)


def test_what_was_given_before_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    (first, *_) = free_ports(1)
    monkeypatch.setattr(module, "PORT_FIRST", first)
    monkeypatch.setattr(module, "PORT_LAST", first + 1)
    with HeldPorts() as held:
        assert list(held.take(1)) == [first]
        with pytest.raises(ClientError, match="There are no 1 free ports"):
            held.take(1)


def test_a_certain_port_is_held_once_and_only_while_it_is_free() -> None:
    with socket.create_server((HOST, 0)) as server, HeldPorts() as held:
        assert not held.hold(server.getsockname()[1])
    (port,) = free_ports(1)
    with HeldPorts() as held:
        assert held.hold(port)
        assert not held.hold(port)


@only_on_linux
def test_a_held_port_is_nobody_elses_until_it_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    with HeldPorts() as held:
        (port,) = held.take(1)
        assert not can_bind(port)
        monkeypatch.setattr(module, "PORT_FIRST", port)
        monkeypatch.setattr(module, "PORT_LAST", port + 1)
        with HeldPorts() as other, pytest.raises(ClientError, match="no 1 free ports"):
            other.take(1)
    assert can_bind(port)


@only_on_linux
def test_a_server_on_a_held_port_comes_and_goes_and_comes_back() -> None:
    with HeldPorts() as held:
        address = (HOST, *held.take(1))
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)
            with socket.create_server(address) as server, socket.create_connection(address):
                accepted, _ = server.accept()
                accepted.close()
            assert not can_bind(address[1])
