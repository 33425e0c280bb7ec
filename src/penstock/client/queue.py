"""`Queue` and `AsyncQueue`: one worker takes each message, and says what became of it.

A queue is a topic under a share group. A message that was taken stays with its worker while the
program lives: its lease is renewed until it is settled. If the program dies, or gives the message
back, another worker gets it, until it was tried too often.
"""

import asyncio
import inspect
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import TracebackType
from typing import Any, Self

from penstock.client.connection import bootstrap_or_default
from penstock.client.errors import ClientError
from penstock.client.queues import Queues
from penstock.client.stopping import stopped_by
from penstock.client.tracing import place_of, tracing_of_program
from penstock.client.values import as_json, as_text
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.queue_leases import Lease, LeaseLost
from penstock.client.wire.settings import WireSettings
from penstock.records.record import Headers

logger = logging.getLogger(__name__)

# How long the broker may take for the questions that come before the first message.
TIMEOUT_S = 10.0
# How often a worker that waits for messages looks whether it shall stop.
LOOK_S = 0.5
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Reject(Exception):
    """A handler raises it for a message that nobody can process: it is not tried again."""


class Message:
    """A message that nobody else has until it is settled, once, in one of three ways."""

    __slots__ = ("_lease", "_outcome")

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._outcome: Future[None] | None = None

    def __repr__(self) -> str:
        return f"<message {self.topic}-{self.partition}@{self.offset}, attempt {self.attempt}>"

    @property
    def value(self) -> bytes | None:
        return self._lease.record.value

    def text(self) -> str | None:
        """The value as text; raises ClientError if it is not UTF-8."""
        return as_text(self.value)

    def json(self) -> Any:
        """The value decoded from JSON; raises ClientError if it is not JSON."""
        return as_json(self.value)

    @property
    def key(self) -> bytes | None:
        return self._lease.record.key

    @property
    def headers(self) -> Headers:
        return self._lease.record.headers

    @property
    def timestamp_ms(self) -> int:
        return self._lease.record.timestamp_ms

    @property
    def topic(self) -> str:
        return str(self._lease.partition.topic)

    @property
    def partition(self) -> int:
        return int(self._lease.partition.partition)

    @property
    def offset(self) -> int:
        return self._lease.record.offset

    @property
    def attempt(self) -> int:
        """How often it was handed out, counted from 1."""
        return self._lease.attempt

    @property
    def is_settled(self) -> bool:
        return self._outcome is not None

    def ack(self) -> "Future[None]":
        """It is done. The result is there when the broker has stored it."""
        return self._settled(self._lease.accept())

    def nack(self) -> "Future[None]":
        """Somebody shall try it again: at once, or later if the queue has a backoff."""
        return self._settled(self._lease.release())

    def reject(self) -> "Future[None]":
        """Nobody can process it: it goes to the dead letters, if the queue has some."""
        return self._settled(self._lease.reject())

    def _settled(self, outcome: "Future[None]") -> "Future[None]":
        self._outcome = outcome
        return outcome


class Queue:
    """Messages of one or several topics under a group, for programs that block.

        with Queue("orders", group="billing") as queue:
            for message in queue:
                bill(message.value)

    A message is acked when the loop asks for the next one, unless it was settled before. What is
    not settled when the block ends goes back to the queue. Several threads may use one queue.
    """

    def __init__(
        self,
        topics: str | Iterable[str],
        *,
        group: str,
        bootstrap: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        if not self._topics:
            raise ClientError("A queue needs at least one topic.")
        self._group = group
        self._bootstrap = bootstrap_or_default(bootstrap)
        self._timeout_s = timeout_s
        self._tracing = tracing_of_program()
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        """Joins the group. One that is new starts with the oldest message."""
        Queues(self._bootstrap, timeout_s=self._timeout_s).begin(self._group)
        with ExitStack() as opened:
            settings = WireSettings(bootstrap=self._bootstrap)
            cluster = opened.enter_context(WireCluster(settings))
            self._reader = opened.enter_context(cluster.queue(self._group, self._topics))
            self._resources = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._resources.close()

    def take(self, count_max: int = 1, timeout_s: float | None = None) -> list[Message]:
        """Waits for at least one message; none if the time is over or the queue stops."""
        return [Message(lease) for lease in self._reader.take(count_max, timeout_s)]

    def stop(self) -> None:
        """Nothing is taken from now on: loops and `work` end with what they have."""
        self._reader.stop_taking()

    def __iter__(self) -> Iterator[Message]:
        while taken := self.take():
            (message,) = taken
            with self.processing(message):
                yield message
            if not message.is_settled:
                _report(message, message.ack())

    def work(
        self,
        handler: Callable[[Message], object],
        *,
        concurrency: int = 1,
        idle_s: float | None = None,
    ) -> None:
        """Calls the handler for each message, in `concurrency` threads, until the queue stops.

        A message is acked when the handler returns, given back if it raises, and rejected if it
        raises Reject. SIGTERM and SIGINT end it after the messages that are being handled, where
        they can: in the main thread of a program. With `idle_s` it ends when nothing was taken for
        that long.
        """
        if concurrency < 1:
            raise ClientError("A queue needs at least one worker.")
        with (
            stopped_by(_SIGNALS, self.stop),
            ThreadPoolExecutor(concurrency, "queue worker") as threads,
        ):
            workers = [threads.submit(self._work, handler, idle_s) for _ in range(concurrency)]
            try:
                for worker in workers:
                    worker.result()
            except BaseException:
                self.stop()
                raise

    def processing(self, message: Message) -> AbstractContextManager[Any]:
        """While a message is processed: a span, in programs that trace. Loops and `work` use it."""
        if self._tracing is None:
            return nullcontext()
        return self._tracing.current(self.begin_span(message))

    def begin_span(self, message: Message) -> Any:
        if self._tracing is None:
            return None
        return self._tracing.begin(message.topic, message.headers, self._place_of(message))

    def _place_of(self, message: Message) -> dict[str, str | int | None]:
        return place_of(
            group=self._group,
            partition=message.partition,
            offset=message.offset,
            attempt=message.attempt,
        )

    def _work(self, handler: Callable[[Message], object], idle_s: float | None) -> None:
        while taken := self.take(timeout_s=idle_s):
            (message,) = taken
            try:
                with self.processing(message):
                    handler(message)
            except Exception as error:
                _give_back(message, error)
            else:
                if not message.is_settled:
                    _report(message, message.ack())


class AsyncQueue:
    """The same for asyncio.

    async with AsyncQueue("orders", group="billing") as queue:
        async for message in queue:
            await bill(message.value)
    """

    def __init__(
        self,
        topics: str | Iterable[str],
        *,
        group: str,
        bootstrap: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._queue = Queue(topics, group=group, bootstrap=bootstrap, timeout_s=timeout_s)
        # One thread waits for messages; leases are kept by others.
        self._threads = ThreadPoolExecutor(1, "queue")
        self._is_stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._in_thread(self._queue.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        await asyncio.to_thread(self._queue.__exit__, None, None, None)
        self._threads.shutdown(wait=False)

    async def take(self, count_max: int = 1, timeout_s: float | None = None) -> list[Message]:
        """Waits for at least one message; none if the time is over or the queue stops.

        What arrives for somebody who was cancelled meanwhile goes back to the queue.
        """
        taking = self._threads.submit(self._queue.take, count_max, timeout_s)
        try:
            return await asyncio.shield(asyncio.wrap_future(taking))
        except asyncio.CancelledError:
            taking.add_done_callback(_abandon)
            raise

    def stop(self) -> None:
        """Nothing is taken from now on: loops and `work` end with what they have."""
        self._is_stopping.set()
        self._queue.stop()

    async def __aiter__(self) -> AsyncIterator[Message]:
        while not self._is_stopping.is_set():
            for message in await self.take(timeout_s=LOOK_S):
                span = self._queue.begin_span(message)
                try:
                    yield message
                finally:
                    if span is not None:
                        span.end()
                if not message.is_settled:
                    _report(message, message.ack())

    async def work(
        self,
        handler: Callable[[Message], Awaitable[object] | object],
        *,
        concurrency: int = 1,
        idle_s: float | None = None,
    ) -> None:
        """Calls the handler, a coroutine function or a plain one that does not block, for each
        message, for `concurrency` at a time, until the queue stops. See `Queue.work`."""
        if concurrency < 1:
            raise ClientError("A queue needs at least one worker.")
        loop = asyncio.get_running_loop()
        idle_since = loop.time()
        at_work: set[asyncio.Task[None]] = set()
        try:
            while not self._is_stopping.is_set():
                if len(at_work) >= concurrency:
                    await asyncio.wait(at_work, return_when=asyncio.FIRST_COMPLETED)
                    continue
                for message in await self.take(concurrency - len(at_work), LOOK_S):
                    task = loop.create_task(self._handle(handler, message))
                    at_work.add(task)
                    task.add_done_callback(at_work.discard)
                if at_work:
                    idle_since = loop.time()
                elif idle_s is not None and loop.time() - idle_since >= idle_s:
                    return
        finally:
            if at_work:
                await asyncio.wait(at_work)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _handle(
        self, handler: Callable[[Message], Awaitable[object] | object], message: Message
    ) -> None:
        try:
            with self._queue.processing(message):
                result = handler(message)
                if inspect.isawaitable(result):
                    await result
        except Exception as error:
            _give_back(message, error)
        else:
            if not message.is_settled:
                _report(message, message.ack())


def _abandon(taking: "Future[list[Message]]") -> None:
    if not taking.cancelled() and taking.exception() is None:
        for message in taking.result():
            message.nack()


def _give_back(message: Message, error: Exception) -> None:
    """The handler failed."""
    if isinstance(error, Reject):
        logger.warning("%r is rejected: %s", message, error)
    else:
        logger.exception("the handler failed for %r, which is tried again", message)
    if not message.is_settled:
        _report(message, message.reject() if isinstance(error, Reject) else message.nack())


def _report(message: Message, outcome: "Future[None]") -> None:
    """Says if the word came too late. Nothing else can be done about it: others have it now."""

    def told(found: "Future[None]") -> None:
        error = found.exception()
        if isinstance(error, LeaseLost):
            logger.warning("what became of %r could not be stored: %s", message, error)
        elif error is not None:
            logger.error("what became of %r could not be stored: %s", message, error)

    outcome.add_done_callback(told)
