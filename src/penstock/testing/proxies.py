"""A network between nodes that can be cut: one small TCP proxy for each direction of dialling.

A cut works like one in a real network. What is sent arrives nowhere, nobody notices, and what TCP
still holds arrives after the cut has healed. One direction can be cut without the other.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.model.endpoint import Endpoint

PIECE_BYTES = 1 << 16
CONTROL_TIMEOUT_S = 60.0

# A direction between two nodes, by their numbers: who sends, who receives.
Direction = tuple[int, int]
T = TypeVar("T")


class Proxies:
    """The proxies of one cluster, on an event loop in a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._gates = _Gates()
        self._proxies: list[_Proxy] = []
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="penstock-proxies", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._do(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CONTROL_TIMEOUT_S)
        self._loop.close()

    def add(self, sources: Collection[int], target: int, at: Endpoint, to: Endpoint) -> None:
        """A proxy at which the `sources` dial node `target`, which listens at `to`."""
        proxy = _Proxy(sources, target, at, to, self._gates)
        self._proxies.append(proxy)

    def open(self, target: int) -> None:
        """Let `target` be dialled."""
        self._do(lambda: self._open(target))

    def refuse(self, target: int) -> None:
        """Refuse new connections to `target`, as a machine does whose node is down."""
        self._do(lambda: self._refuse(target))

    def cut(self, directions: Iterable[Direction]) -> None:
        """Cut exactly these directions and heal all others."""
        wanted = frozenset(directions)
        self._do(lambda: self._gates.set_cut(wanted))

    def _do(self, action: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(action(), self._loop).result(CONTROL_TIMEOUT_S)

    async def _open(self, target: int) -> None:
        for proxy in self._proxies:
            if proxy.target == target:
                await proxy.open()

    async def _refuse(self, target: int) -> None:
        for proxy in self._proxies:
            if proxy.target == target:
                proxy.refuse()

    async def _close(self) -> None:
        for proxy in self._proxies:
            proxy.refuse()
        running = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class _Gates:
    """Which directions are cut; anyone who has something to deliver waits here."""

    def __init__(self) -> None:
        self._cut: frozenset[Direction] = frozenset()
        self._changed = asyncio.Event()

    async def set_cut(self, directions: frozenset[Direction]) -> None:
        self._cut = directions
        self._changed.set()
        self._changed = asyncio.Event()

    async def passage(self, directions: Collection[Direction]) -> None:
        """Returns when none of the directions is cut."""
        while not self._cut.isdisjoint(directions):
            await self._changed.wait()


class _Proxy:
    """Listens in place of one node, for some of its peers."""

    def __init__(
        self, sources: Collection[int], target: int, at: Endpoint, to: Endpoint, gates: _Gates
    ) -> None:
        self.target = target
        self._at = at
        self._to = to
        self._gates = gates
        self._there = frozenset((source, target) for source in sources)
        self._back = frozenset((target, source) for source in sources)
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, *self._at)

    def refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(
        self, from_source: asyncio.StreamReader, to_source: asyncio.StreamWriter
    ) -> None:
        """One connection, from its first packet to its last, or to the end of all proxies."""
        with contextlib.suppress(asyncio.CancelledError):
            try:
                # A connection needs packets in both directions before it stands.
                await self._gates.passage(self._there | self._back)
                from_target, to_target = await asyncio.open_connection(*self._to)
            except (OSError, asyncio.CancelledError):
                to_source.transport.abort()
                return
            await asyncio.gather(
                self._carry(from_source, to_target, self._there),
                self._carry(from_target, to_source, self._back),
            )

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        directions: Collection[Direction],
    ) -> None:
        """Carries bytes one way until that way ends, which is news that must pass the gate too."""
        try:
            with contextlib.suppress(OSError):
                while piece := await reader.read(PIECE_BYTES):
                    await self._gates.passage(directions)
                    writer.write(piece)
                    await writer.drain()
            await self._gates.passage(directions)
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        # Nodes never end one direction alone, so the end of one is the end of both; what was
        # written before is still delivered.
        writer.close()
