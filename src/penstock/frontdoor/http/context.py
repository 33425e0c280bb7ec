"""What handlers share: the broker, writing, reading, time, and how much is under way."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.broker.doors.calls import Call
from penstock.frontdoor.http.limits import ARROW_STREAMS_MAX, BODIES_BYTES_MAX, STREAMS_MAX
from penstock.frontdoor.http.metrics import Metrics
from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.requests import Gone, Request
from penstock.frontdoor.remote.broker import Broker
from penstock.frontdoor.remote.locks import Locks
from penstock.frontdoor.remote.queueing import Queueing
from penstock.frontdoor.remote.reading import Reader
from penstock.frontdoor.remote.stopping import Stopping
from penstock.frontdoor.remote.topics import Topics
from penstock.frontdoor.remote.writing import Writer

if TYPE_CHECKING:
    from penstock.frontdoor.remote.consuming import Consumers
    from penstock.frontdoor.remote.registry import Registry

T = TypeVar("T")


@dataclass(slots=True)
class Context:
    broker: Broker
    topics: Topics
    writer: Writer
    reader: Reader
    locks: Locks
    metrics: Metrics
    now_ms: Callable[[], int]
    queueing: Queueing
    # Who follows a queue and has the message of a token: told what became of it, or how long the
    # lease is that began again.
    followed: dict[str, Callable[[str, int | None], None]] = field(default_factory=dict)
    # Made when it is first used; see http/registry.py.
    registry: "Registry | None" = None
    # Likewise; see http/consumers.py.
    consumers: "Consumers | None" = None
    bodies_bytes: int = 0
    streams: int = 0
    arrow_streams: int = 0
    # What waits for records ends then.
    stopping: Stopping = field(default_factory=Stopping)

    async def ask(self, call: Call[T]) -> T:
        return await self.broker.ask(call)

    def hold(self, size: int) -> None:
        """Counts bytes of a body, until `release`."""
        if self.bodies_bytes + size > BODIES_BYTES_MAX:
            detail = f"Requests of {self.bodies_bytes:,} bytes are under way; try again."
            raise Problem(503, detail, reason="busy")
        self.bodies_bytes += size

    def release(self, size: int) -> None:
        self.bodies_bytes -= size

    def open_stream(self) -> None:
        if self.streams >= STREAMS_MAX:
            raise Problem(503, f"{self.streams:,} streams are open already.", reason="busy")
        self.streams += 1

    def close_stream(self) -> None:
        self.streams -= 1

    def open_arrow(self) -> None:
        """Each holds megabytes, and keeps a thread busy."""
        if self.arrow_streams >= ARROW_STREAMS_MAX:
            detail = f"{self.arrow_streams} Arrow streams are open already; try again."
            raise Problem(503, detail, reason="busy")
        self.arrow_streams += 1

    def close_arrow(self) -> None:
        self.arrow_streams -= 1


async def unless_gone(
    context: Context,
    request: Request,
    work: Coroutine[Any, Any, T],
    drop: Callable[[T], None] = lambda _: None,
) -> T:
    """The outcome of work that may take long. Raises Gone if the client goes away meanwhile, and a
    Problem if this process is to end. To be used after the body was read. `drop` gets an outcome
    that nobody gets."""
    task = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(request.gone())
    try:
        with context.stopping.watched() as stopping:
            either: list[asyncio.Future[Any]] = [task, watching, stopping]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            if task.done() and not task.exception():
                drop(task.result())
            raise Gone
        if task.done():
            return task.result()
        raise Problem(503, "This node is stopping.", reason="stopping")
    finally:
        watching.cancel()
        if not task.done():
            task.cancel()
