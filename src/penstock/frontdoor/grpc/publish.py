"""Writing records: Publish, and PublishStream with many requests under way."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from penstock.frontdoor.grpc import limits, messages
from penstock.frontdoor.grpc.context import Call, Context, Conversation
from penstock.frontdoor.grpc.statuses import Failure, busy, invalid
from penstock.frontdoor.grpc.translation import idempotency_key, publish_reply, to_rows
from penstock.frontdoor.remote.writing import Outcome, in_trace
from penstock.model.errors import Refused
from penstock.model.trace_context import TRACEPARENT, TRACESTATE


async def publish(
    context: Context, request: messages.PublishRequest, call: Call
) -> messages.PublishReply:
    size = request.ByteSize()
    if not context.budget.try_take(size):
        raise busy("Too many bytes are under way; try again.")
    try:
        return await _finished(await _begin(context, request.topic, request, _trace_of(call)))
    finally:
        context.budget.give(size)


class _Begun(NamedTuple):
    outcomes: Callable[[], Coroutine[Any, Any, list[Outcome]]]
    records: int


# `traceparent` and `tracestate` of a call.
_Trace = tuple[str | None, str | None]


def _trace_of(call: Call) -> _Trace:
    parent = call.metadata(TRACEPARENT)
    return parent, None if parent is None else call.metadata(TRACESTATE)


async def _begin(
    context: Context, topic: str, request: messages.PublishRequest, trace: _Trace
) -> _Begun:
    """Everything about a request is checked here, before its first record is written."""
    key = idempotency_key(request.idempotency_key)
    wanted = in_trace(to_rows(request.records, context.now_ms()), *trace, key)
    return _Begun(await context.parts.writer.begin(topic, wanted, key), len(wanted))


async def _finished(begun: _Begun) -> messages.PublishReply:
    return publish_reply(await begun.outcomes(), begun.records)


async def publish_stream(
    context: Context, conversation: Conversation[messages.PublishRequest]
) -> None:
    with context.stream():
        stream = _Stream(context, conversation)
        reading = asyncio.ensure_future(stream.read())
        try:
            await stream.answer()
        finally:
            reading.cancel()
            stream.give_up()


class _Stream:
    """Requests are begun in order as they come, and answered in order as they are written."""

    def __init__(
        self, context: Context, conversation: Conversation[messages.PublishRequest]
    ) -> None:
        self._context = context
        self._conversation = conversation
        self._topic = ""
        self._trace = _trace_of(conversation)
        self._last: asyncio.Task[messages.PublishReply] | None = None
        # None or a failure is the end.
        self._under_way: asyncio.Queue[asyncio.Task[messages.PublishReply] | Exception | None] = (
            asyncio.Queue(limits.REQUESTS_UNDER_WAY_MAX)
        )

    # Reading

    async def read(self) -> None:
        end: Exception | None = None
        try:
            async for request in self._conversation.requests():
                await self._take(request)
        except Exception as failure:
            end = failure
        await self._under_way.put(end)

    async def _take(self, request: messages.PublishRequest) -> None:
        self._topic = request.topic or self._topic
        size = request.ByteSize()
        await self._context.budget.take(size)
        if request.idempotency_key and self._last is not None:
            # What has a key does not wait in a lane, so it could overtake what came before.
            await asyncio.wait([self._last])
        try:
            begun = await _begin(self._context, self._named_topic(), request, self._trace)
            self._last = asyncio.ensure_future(_finished(begun))
        except (Failure, Refused) as refused:
            self._last = asyncio.ensure_future(_failed(refused))
        except BaseException:
            self._context.budget.give(size)
            raise
        # Not when it is answered: the client may never read that.
        self._last.add_done_callback(lambda _: self._context.budget.give(size))
        try:
            await self._under_way.put(self._last)
        except BaseException:
            self._last.cancel()
            raise

    def _named_topic(self) -> str:
        if not self._topic:
            raise invalid("topic", "The first request must name a topic.")
        return self._topic

    # Answering

    async def answer(self) -> None:
        while (work := await self._next()) is not None:
            await self._conversation.send(await _outcome(work))

    async def _next(self) -> "asyncio.Task[messages.PublishReply] | None":
        under_way = await self._under_way.get()
        if isinstance(under_way, Exception):
            raise under_way
        return under_way

    def give_up(self) -> None:
        """What is still under way when the call ends."""
        while not self._under_way.empty():
            work = self._under_way.get_nowait()
            if isinstance(work, asyncio.Task) and not work.cancel() and not work.cancelled():
                # Somebody must have looked at what it raised.
                work.exception()


async def _failed(failure: Failure | Refused) -> messages.PublishReply:
    raise failure


async def _outcome(work: "asyncio.Task[messages.PublishReply]") -> messages.PublishStreamReply:
    try:
        return messages.PublishStreamReply(written=await work)
    except Refused as refused:
        return messages.PublishStreamReply(problem=Failure.of(refused).problem)
    except Failure as failure:
        return messages.PublishStreamReply(problem=failure.problem)
