"""What answers share: the broker, writing, reading, time, and how much is under way."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from penstock.frontdoor.grpc import limits, statuses
from penstock.frontdoor.remote.parts import Parts
from penstock.frontdoor.remote.stopping import Stopping
from penstock.model.errors import Refused

logger = logging.getLogger(__name__)

T = TypeVar("T")
Request = TypeVar("Request", covariant=True)


class Budget:
    """Bytes that may be held at a time; those who wait for some get them in order."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def try_take(self, size: int) -> bool:
        if self._waiting or size > self._left:
            return False
        self._left -= size
        return True

    async def take(self, size: int) -> None:
        if self.try_take(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size)
            else:
                self._waiting.remove((size, turn))
                self._serve()
            raise

    def give(self, size: int) -> None:
        self._left += size
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._left:
            size, turn = self._waiting.popleft()
            if not turn.done():
                self._left -= size
                turn.set_result(None)


@dataclass(slots=True)
class Context:
    parts: Parts
    now_ms: Callable[[], int]
    # Done when the process is asked to end: what waits for records ends then.
    stopping: Stopping
    budget: Budget = field(default_factory=lambda: Budget(limits.REQUEST_BYTES_MAX))
    streams: int = 0
    _tasks: "set[asyncio.Task[Any]]" = field(default_factory=set)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Counts a call that has no end of its own."""
        if self.streams >= limits.STREAMS_MAX:
            raise statuses.busy(f"{self.streams:,} streams are open already.")
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Work that goes on when the call is over; if the broker refuses it, nothing is lost."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)

    def _spawned(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        failure = task.exception()
        if failure is not None and not isinstance(failure, Refused):
            logger.error("work after a call failed", exc_info=failure)

    async def drain(self) -> None:
        """Waits for what goes on."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def unless_stopping(
        self, work: Coroutine[Any, Any, T], drop: Callable[[T], None] = lambda _: None
    ) -> T:
        """The outcome of work that may wait for long. `drop` gets an outcome that comes together
        with the end of the call, so that nobody gets it."""
        task = asyncio.ensure_future(work)
        try:
            return await self.first_of([task])
        except asyncio.CancelledError:
            if task.done() and not task.cancelled() and task.exception() is None:
                drop(task.result())
            raise
        finally:
            if not task.done():
                task.cancel()

    async def first_of(self, tasks: "Sequence[asyncio.Future[T]]") -> T:
        """The outcome of the first that is done; raises Failure if this process is to end."""
        with self.stopping.watched() as stopping:
            either: list[asyncio.Future[Any]] = [*tasks, stopping]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                return task.result()
        raise statuses.stopping()


class Call(Protocol):
    """What an answer may know of the call that it answers."""

    def bounded_s(self, wait_s: float) -> float:
        """How long it may wait, so that its answer arrives before the client's deadline."""

    def metadata(self, name: str) -> str | None:
        """What the client sent along under this name."""


class Conversation(Call, Protocol[Request]):
    """A call whose both sides are streams."""

    def requests(self) -> AsyncIterator[Request]:
        """Raises Failure for one that can't be decoded."""

    async def send(self, reply: Any) -> None:
        """Waits while the client does not read. Only one task may be in it."""
