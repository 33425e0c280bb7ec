"""Following a queue: `GET /v1/queues/{topic}/{group}/events`, as server-sent events.

Each event is a leased message with its token, and is acked by a request of its own. A stream has
at most `limit` messages that are not settled: it polls for more only when there is room and when
everything before has left. So nothing is buffered for a slow reader, whom the server cuts off.
When a stream ends, what was not settled is given back at once.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from penstock.broker.doors.queue_calls import LEASE_MS_MAX, LEASE_MS_MIN
from penstock.frontdoor.http.context import Context
from penstock.frontdoor.http.events import CHUNK_BYTES_MAX, EVENTS_TYPE, error_event
from penstock.frontdoor.http.limits import STREAM_BEAT_S, STREAM_MESSAGES, STREAM_MESSAGES_MAX
from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.queue_messages import PolledMessages
from penstock.frontdoor.http.queues import leased, queue_of
from penstock.frontdoor.http.read import ENCODING, ENCODINGS
from penstock.frontdoor.http.requests import Answer, Request
from penstock.frontdoor.http.routes import Parameter, Route
from penstock.frontdoor.remote.queueing import Messages
from penstock.model.errors import Refused

# How long a poll waits before the next one asks again.
WAIT_S: Final = 50.0
# A poll that has nothing so soon was not allowed to wait: the next one comes later.
HURRY_S: Final = 0.5
PAUSE_S: Final = 1.0
_BEAT: Final = b": beat\n\n"
_ENCODER: Final = msgspec.json.Encoder()


async def queue_events(context: Context, request: Request) -> Answer:
    encoding = request.choice("encoding", ENCODINGS)
    limit = request.number("limit", STREAM_MESSAGES, 1, STREAM_MESSAGES_MAX)
    lease_ms = request.number("lease_ms", 0, LEASE_MS_MIN, LEASE_MS_MAX)
    await context.topics.find(request.parameters["topic"])
    context.open_stream()
    following = _Following(context, queue_of(request), limit, lease_ms)
    pieces = _stream(context, request, following, encoding)
    # Started here, so that its end is reached even if nobody ever reads from it.
    await anext(pieces)
    return Answer(200, b"", EVENTS_TYPE, {"x-accel-buffering": "no"}, pieces)


async def _stream(
    context: Context, request: Request, following: "_Following", encoding: str
) -> AsyncGenerator[bytes, None]:
    gone = asyncio.ensure_future(request.gone())
    try:
        yield b""
        yield b": following\n\n"
        while not gone.done() and not context.stopping.done():
            polled = await following.next(gone)
            if polled is None:
                if not gone.done() and not context.stopping.done():
                    yield _BEAT
                continue
            if polled.messages:
                events = _events(polled, encoding)
                following.sent(polled)
                yield events
    except Refused as refused:
        yield error_event(Problem.of(refused))
    finally:
        gone.cancel()
        following.close()
        context.close_stream()


def _events(polled: Messages, encoding: str) -> bytes:
    pieces: list[bytes] = []
    for message in polled.messages:
        data = _ENCODER.encode(leased(message, encoding))
        pieces += (b"event: message\ndata: ", data, b"\n\n")
    return b"".join(pieces)


class _Following:
    """One poll at a time, and what it brought that is not settled yet."""

    def __init__(self, context: Context, queue: tuple[str, str], limit: int, lease_ms: int) -> None:
        self._context = context
        self._queue = queue
        self._limit = limit
        self._lease_ms = lease_ms
        self._loop = asyncio.get_running_loop()
        self._polling: asyncio.Future[Messages] | None = None
        self._polled_at = 0.0
        self._not_before = 0.0
        # Tokens with the time when their lease is over, those that were polled but not sent yet,
        # and somebody who waits for room.
        self._open: dict[str, float] = {}
        self._unsent: dict[str, None] = {}
        self._settled = asyncio.Event()

    async def next(self, gone: "asyncio.Future[Any]") -> Messages | None:
        """What a poll brought; None after a while, or if the stream is to end."""
        now = self._loop.time()
        self._forget_over(now)
        pause_s = max(0.0, self._not_before - now)
        room = self._limit - len(self._open)
        if self._polling is None and room > 0 and not pause_s:
            self._polled_at = now
            work = self._context.queueing.poll(
                *self._queue,
                records_max=room,
                lease_ms=self._lease_ms,
                wait_s=WAIT_S,
                bytes_max=CHUNK_BYTES_MAX,
            )
            self._polling = asyncio.ensure_future(work)
        self._settled.clear()
        waiting: asyncio.Future[Any] = self._polling or asyncio.ensure_future(self._settled.wait())
        timeout = min(STREAM_BEAT_S, pause_s) if pause_s else STREAM_BEAT_S
        try:
            with self._context.stopping.watched() as stopping:
                await asyncio.wait(
                    [waiting, gone, stopping],
                    timeout=timeout,
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            if waiting is not self._polling:
                waiting.cancel()
        if self._polling is None or not self._polling.done():
            return None
        polling, self._polling = self._polling, None
        return self._polled(polling.result())

    def _polled(self, polled: Messages) -> Messages:
        now = self._loop.time()
        if not polled.messages and now - self._polled_at < HURRY_S:
            self._not_before = now + PAUSE_S
        for message in polled.messages:
            self._open[message.token] = now + polled.lease_ms / 1000
            self._unsent[message.token] = None
            self._context.followed[message.token] = self.settled
        return polled

    def sent(self, polled: Messages) -> None:
        for message in polled.messages:
            self._unsent.pop(message.token, None)

    def settled(self, token: str, lease_ms: int | None) -> None:
        """Through this node: it is done with, or its lease begins again."""
        if token in self._open:
            if lease_ms is None:
                self._forget(token)
                self._settled.set()
            else:
                self._open[token] = self._loop.time() + lease_ms / 1000

    def _forget_over(self, now: float) -> None:
        for token in [token for token, until in self._open.items() if until <= now]:
            self._forget(token)

    def _forget(self, token: str) -> None:
        del self._open[token]
        self._unsent.pop(token, None)
        self._context.followed.pop(token, None)

    def close(self) -> None:
        if self._polling is not None:
            if not self._polling.cancel() and not self._polling.exception():
                self._polled(self._polling.result())
            self._polling = None
        sent = [token for token in self._open if token not in self._unsent]
        self._context.queueing.give_back(*self._queue, delivered=sent, undelivered=[*self._unsent])
        for token in list(self._open):
            self._forget(token)


ROUTES = (
    Route(
        method="GET",
        path="/v1/queues/{topic}/{group}/events",
        handler=queue_events,
        summary="Follow a queue by server-sent events.",
        help="Each event `message` holds a leased message with its token, as JSON in one line. "
        "Ack it by a request to this node, before its lease ends. At most `limit` messages are out "
        "at a time. When the stream ends, what was not acked is given back at once. The event "
        "`error` holds a problem document and ends the stream.",
        parameters=(
            Parameter(
                name="limit",
                help="The most messages that are out and not settled at a time.",
                schema={
                    "type": "integer",
                    "minimum": 1,
                    "maximum": STREAM_MESSAGES_MAX,
                    "default": STREAM_MESSAGES,
                },
            ),
            Parameter(
                name="lease_ms",
                help="How long each message is leased; what the group's settings say by default.",
                schema={"type": "integer", "minimum": LEASE_MS_MIN, "maximum": LEASE_MS_MAX},
            ),
            ENCODING,
        ),
        answers={200: PolledMessages},
        answer_types=(EVENTS_TYPE,),
        problems=(404, 503),
        # It leases messages.
        has_effects=True,
    ),
)
