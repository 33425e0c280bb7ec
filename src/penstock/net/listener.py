"""Accepts connections over IPv4, IPv6 or both, and survives a lack of descriptors."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from penstock.model.endpoint import Endpoint
from penstock.model.errors import StartRefused
from penstock.net.occasional_log import OccasionalLog

BACKLOG: Final = 1024
# Accepted per wake-up, so that a storm of connections does not hold up those that exist.
ACCEPTS_PER_TURN_MAX: Final = 64
ACCEPT_PAUSE_SECONDS: Final = 0.5
_PORT_ATTEMPTS_MAX: Final = 8
_NO_SUCH_ADDRESS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_NO_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

# A family, and an address in its form: host, port, and more for IPv6.
AddressInfo = tuple[socket.AddressFamily, tuple[Any, ...]]

logger = logging.getLogger(__name__)


class Listener:
    """Hands each accepted socket to `on_accept`, already non-blocking."""

    def __init__(
        self, on_accept: Callable[[socket.socket, Endpoint], None], *, log: OccasionalLog
    ) -> None:
        self._on_accept = on_accept
        self._log = log
        self._sockets: list[socket.socket] = []
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}

    async def start(self, host: str, port: int) -> Endpoint:
        """Binds every address that `host` has; returns where clients can connect."""
        bound = await self.bind(host, port)
        self.listen()
        return bound

    async def bind(self, host: str, port: int) -> Endpoint:
        """Takes the addresses, but anyone who connects before `listen` is refused."""
        self._sockets = await bind_sockets(Endpoint(host, port))
        return Endpoint(host, self._sockets[0].getsockname()[1])

    def listen(self) -> None:
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            try:
                sock.listen(BACKLOG)
            except OSError as error:
                bound = Endpoint(*sock.getsockname()[:2])
                raise _refusal(bound, error) from error
            loop.add_reader(sock, self._accept, sock)

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        sockets, self._sockets = self._sockets, []
        for sock in sockets:
            pause = self._pauses.pop(sock, None)
            if pause is not None:
                pause.cancel()
            loop.remove_reader(sock)
            sock.close()

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN_MAX):
            try:
                accepted, address = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_RESOURCES:
                    self._log.warning(logger, "accept", "can't accept connections: %s", error)
                    return
                self._pause(sock, error)
                return
            accepted.setblocking(False)
            self._on_accept(accepted, Endpoint(str(address[0]), int(address[1])))
            if not self._sockets:
                return

    def _pause(self, sock: socket.socket, error: OSError) -> None:
        """A waiting connection keeps the socket readable: without a pause the loop would spin."""
        loop = asyncio.get_running_loop()
        self._log.warning(logger, "accept", "can't accept connections for a moment: %s", error)
        loop.remove_reader(sock)
        self._pauses[sock] = loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume, sock)

    def _resume(self, sock: socket.socket) -> None:
        del self._pauses[sock]
        asyncio.get_running_loop().add_reader(sock, self._accept, sock)


async def check_free(endpoint: Endpoint) -> None:
    """Raises StartRefused if nobody could listen there now; takes nothing."""
    _close_all(await bind_sockets(endpoint))


async def bind_sockets(endpoint: Endpoint) -> list[socket.socket]:
    """A socket for every address that the host has; raises StartRefused."""
    return _bind_all(await _resolve(*endpoint), endpoint)


async def _resolve(host: str, port: int) -> list[AddressInfo]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError, OverflowError) as error:
        raise _refusal(Endpoint(host, port), error) from error
    unique = {(family, address[:2]): address for family, _, _, _, address in found}
    return [(family, address) for (family, _), address in unique.items()]


def _bind_all(addresses: list[AddressInfo], asked: Endpoint) -> list[socket.socket]:
    """Port 0 means one free port for all addresses of the host, which may take some attempts."""
    for attempt in range(_PORT_ATTEMPTS_MAX):
        try:
            return _bind_once(addresses)
        except OSError as error:
            may_retry = asked.port == 0 and error.errno == errno.EADDRINUSE
            if may_retry and attempt < _PORT_ATTEMPTS_MAX - 1:
                continue
            raise _refusal(asked, error) from error
    raise AssertionError("the last attempt returns or raises")


def _refusal(endpoint: Endpoint, error: Exception) -> StartRefused:
    return StartRefused(f"The node can't listen on {endpoint}: {_explain(error)}.")


def _explain(error: Exception) -> str:
    if isinstance(error, OSError):
        if error.errno == errno.EADDRINUSE:
            return "the address is already in use"
        if error.strerror:
            return error.strerror.lower()
    return str(error)


def _bind_once(addresses: list[AddressInfo]) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    port = 0
    for family, address in addresses:
        try:
            sock = _bind(family, address, port, alone=len(addresses) == 1)
        except OSError as error:
            if error.errno not in _NO_SUCH_ADDRESS:
                _close_all(sockets)
                raise
            # A name may stand for an address of a family that this machine does not have.
            missing = error
            continue
        sockets.append(sock)
        port = sock.getsockname()[1]
    if missing is not None and not sockets:
        raise missing
    return sockets


def _close_all(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def _bind(
    family: socket.AddressFamily, address: tuple[Any, ...], port: int, *, alone: bool
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # The IPv6 wildcard alone serves IPv4 too; beside an IPv4 socket it must not.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if alone else 1)
        sock.bind((address[0], port or address[1], *address[2:]))
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
