"""Listening: any free port, both families, a taken port, and a lack of descriptors."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

import pytest

from penstock.model.endpoint import Endpoint
from penstock.model.errors import StartRefused
from penstock.net import listener as listener_module
from penstock.net.listener import Listener, check_free
from penstock.net.occasional_log import OccasionalLog
from tests.unit.clocks import ManualClock


def make(on_accept: Callable[[socket.socket, Endpoint], None]) -> Listener:
    return Listener(on_accept, log=OccasionalLog(ManualClock()))


async def accept_one(host: str) -> tuple[Endpoint, Endpoint]:
    """Listens on a free port and connects; returns where, and who was accepted."""
    accepted: asyncio.Future[Endpoint] = asyncio.get_running_loop().create_future()

    def on_accept(sock: socket.socket, peer: Endpoint) -> None:
        assert not sock.getblocking()
        sock.close()
        accepted.set_result(peer)

    listener = make(on_accept)
    endpoint = await listener.start(host, 0)
    _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    peer = await asyncio.wait_for(accepted, 5)
    writer.close()
    listener.close()
    return endpoint, peer


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_port_zero_picks_a_port_that_works(host: str) -> None:
    endpoint, peer = asyncio.run(accept_one(host))
    assert endpoint.host == host
    assert endpoint.port > 0
    assert peer.host in ("127.0.0.1", "::1")


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_ipv6() -> None:
    _, peer = asyncio.run(accept_one("::1"))
    assert peer.host == "::1"


def test_a_taken_port_is_one_clear_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        async def start() -> None:
            await make(lambda sock, peer: None).start("127.0.0.1", port)

        with pytest.raises(StartRefused) as refused:
            asyncio.run(start())
    where = f"127.0.0.1:{port}"
    assert str(refused.value) == f"The node can't listen on {where}: the address is already in use."


def test_an_unknown_host_is_one_clear_sentence() -> None:
    async def start() -> None:
        await make(lambda sock, peer: None).start("no.such.host.invalid", 9092)

    with pytest.raises(StartRefused, match=r"can't listen on no\.such\.host\.invalid:9092: "):
        asyncio.run(start())


async def test_the_port_is_free_after_close() -> None:
    first = make(lambda sock, peer: None)
    endpoint = await first.start("127.0.0.1", 0)
    first.close()
    second = make(lambda sock, peer: None)
    assert await second.start("127.0.0.1", endpoint.port) == endpoint
    second.close()


class StingySocket:
    """A listening socket whose process is out of descriptors at first."""

    def __init__(self, sock: socket.socket, failures: int) -> None:
        self._sock = sock
        self.failures = failures

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._sock.accept()

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()


def test_accepting_survives_a_lack_of_descriptors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It pauses instead of spinning, says so once, and goes on."""
    monkeypatch.setattr(listener_module, "ACCEPT_PAUSE_SECONDS", 0.01)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        accepted: asyncio.Future[None] = loop.create_future()

        def on_accept(sock: socket.socket, peer: Endpoint) -> None:
            sock.close()
            accepted.set_result(None)

        listener = make(on_accept)
        endpoint = await listener.start("127.0.0.1", 0)
        real = listener._sockets[0]
        stingy = StingySocket(real, failures=3)
        loop.remove_reader(real)
        listener._sockets[0] = stingy  # type: ignore[call-overload]
        loop.add_reader(stingy, listener._accept, stingy)  # type: ignore[arg-type]
        _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        await asyncio.wait_for(accepted, 5)
        assert stingy.failures == 0
        writer.close()
        listener.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert len(caplog.records) == 1
    assert "Too many open files" in caplog.text


def test_an_address_can_be_checked_without_taking_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = Endpoint("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(StartRefused, match="already in use"):
            asyncio.run(check_free(endpoint))
    asyncio.run(check_free(endpoint))
    with socket.create_server(tuple(endpoint)):
        pass
