"""Keeps one address connected: dials, waits while there is a connection, dials again."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId
from penstock.net.peer_connection import PeerConnection

DIAL_SECONDS_MAX: Final = 5.0
DELAY_MS_MIN: Final = 100
DELAY_MS_MAX: Final = 1_000
# Of two nodes that lost each other the one with the lower number dials first.
DEFERENCE_MS: Final = 50
# A process that dies may still accept for a moment and reset what it accepted.
DYING_RETRY_MS: Final = 20
# For about a second: anyone who accepts for longer, and wants no connection, lives.
DYING_RETRIES_MAX: Final = 50

logger = logging.getLogger(__name__)


class PeerDialer:
    """One task per address. `node` is who is known, or was found, to be there."""

    def __init__(
        self,
        endpoint: Endpoint,
        node: BrokerId | None,
        *,
        make_connection: Callable[["PeerDialer"], PeerConnection],
        is_connected: Callable[[BrokerId], bool],
        defers_to: Callable[[BrokerId], bool],
        on_process_died: Callable[[BrokerId], None],
        random_below: Callable[[int], int],
    ) -> None:
        self.endpoint = endpoint
        self.node = node
        self._make_connection = make_connection
        self._is_connected = is_connected
        self._defers_to = defers_to
        self._on_process_died = on_process_died
        self._random_below = random_below
        self._wake = asyncio.Event()
        self._was_lost = False
        self._quick_retries_left = 0
        self._reported = ""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def lost(self) -> None:
        """The connection to its node ended: dial at once, and find out whether it still lives."""
        self._was_lost = True
        self._quick_retries_left = DYING_RETRIES_MAX
        self._wake.set()

    def stop(self) -> None:
        self._task.cancel()

    def tell_once(self, text: str) -> None:
        """Logs what stands in the way, but not again as long as it is the same."""
        if text != self._reported:
            self._reported = text
            logger.warning("%s", text)

    async def _run(self) -> None:
        delay_ms = DELAY_MS_MIN
        while True:
            if self.node is not None and self._defers_to(self.node):
                await asyncio.sleep(DEFERENCE_MS / 1000)
            if self.node is None or not self._is_connected(self.node):
                await self._dial()
            if self.node is not None and self._is_connected(self.node):
                delay_ms = DELAY_MS_MIN
                self._reported = ""
                await self._sleep(None)
            else:
                await self._sleep(DYING_RETRY_MS if self._may_be_dying() else delay_ms)
                delay_ms = min(delay_ms * 2, DELAY_MS_MAX)

    def _may_be_dying(self) -> bool:
        self._quick_retries_left -= 1
        return self._was_lost and self._quick_retries_left >= 0

    async def _sleep(self, delay_ms: int | None) -> None:
        """Until the connection is lost, or at most about so long."""
        if delay_ms is None:
            await self._wake.wait()
        else:
            jittered = delay_ms // 2 + self._random_below(delay_ms) + 1
            try:
                async with asyncio.timeout(jittered / 1000):
                    await self._wake.wait()
            except TimeoutError:
                return
        self._wake.clear()

    async def _dial(self) -> None:
        try:
            async with asyncio.timeout(DIAL_SECONDS_MAX):
                connection = await self._connect()
        except ConnectionRefusedError:
            was_lost, self._was_lost = self._was_lost, False
            if was_lost and self.node is not None and not self._is_connected(self.node):
                self._on_process_died(self.node)
            return
        except (OSError, TimeoutError, UnicodeError) as error:
            # A host that does not answer at all has told nothing about its process.
            if not isinstance(error, ConnectionResetError):
                self._was_lost = False
            if not isinstance(error, TimeoutError):
                self.tell_once(f"{self._name()} can't be reached: {error}")
            return
        # Bounded by the time that a handshake may take.
        await connection.settled
        if self.node is not None and self._is_connected(self.node):
            self._was_lost = False

    async def _connect(self) -> PeerConnection:
        """Tries every address of the host; refused only if all of them refuse."""
        loop = asyncio.get_running_loop()
        host, port = self.endpoint
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        failure: OSError = OSError(f"{host} has no address")
        for _, _, _, _, address in found:
            try:
                return await self._connect_to(str(address[0]))
            except ConnectionRefusedError as error:
                if not isinstance(failure, TimeoutError):
                    failure = error
            except OSError as error:
                failure = error
        try:
            raise failure
        finally:
            # It leads to this frame, and the two would keep each other and the attempt for long.
            del failure

    async def _connect_to(self, host: str) -> PeerConnection:
        connection = self._make_connection(self)
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: connection, host, self.endpoint.port)
        except BaseException:
            # Its maker keeps it until it ends, and what never began is not reported to it.
            connection.close("it could not be reached")
            raise
        return connection

    def _name(self) -> str:
        return f"The node at {self.endpoint}" if self.node is None else f"Node {self.node}"
