"""The connections of the HTTP door: uvicorn's, with the limits that it lacks.

uvicorn waits for ever for the rest of a request and for a client that does not read. Here each
connection notes how much came and went, and one coarse timer for all of them closes those that are
overdue: a head or a body that comes too slowly, an answer that nobody reads.
"""

import asyncio
import contextlib
import logging
import select
import socket
from collections.abc import Iterator, Sequence
from typing import Any, Final

import httptools
import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from penstock.frontdoor.http import limits
from penstock.frontdoor.http.problems import PROBLEM_TYPE, Problem

CHECK_S: Final = 1.0

logger = logging.getLogger(__name__)


class GuardedConnection(HttpToolsProtocol):
    """All times are those of the loop."""

    # Since when a head has been arriving, or the connection has been without a first request.
    _head_since: float | None = None
    _head_bytes = 0
    # Since when a body has been arriving.
    _body_since = 0.0
    # Of the present stretch: since when, and how much of the body came in it.
    _stretch_since = 0.0
    _stretch_bytes = 0
    _is_body_open = False
    # Of a body whose request was answered before it was whole.
    _discarded_bytes = 0
    # Since when the client has read too little of what waits for it, and how much waited then.
    _unread_since: float | None = None
    _unread_bytes = 0
    _refusal: Problem | None = None
    # The request that is being answered; requests that came behind it wait in `pipeline`.
    _answered: RequestResponseCycle | None = None

    # Life

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_since = self.loop.time()
        if len(self.connections) > limits.CONNECTIONS_MAX:
            self._refuse(Problem(503, "There are too many connections.", reason="busy"))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        # uvicorn says so to the request that came last, which may be waiting behind this one.
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    # Heads

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self.transport.is_closing():
            return
        super().data_received(data)
        if self._head_since is not None:
            self._head_bytes += len(data)
            if self._head_bytes > limits.HEADER_BYTES_MAX:
                self._refuse(_large_head())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_since = self.loop.time()
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > limits.HEADER_BYTES_MAX:
            self._refusal = _large_head()
            # Ends the parsing, which is answered by `send_400_response`.
            raise ValueError("the head is too large")
        self._head_since = None
        self._body_since = self._stretch_since = self.loop.time()
        self._stretch_bytes = self._discarded_bytes = 0
        self._is_body_open = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_body_open = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What can't be parsed."""
        self._refuse(self._refusal or Problem(400, "This is not an HTTP request."))

    def _unsupported_upgrade_warning(self) -> None:
        """An offer to speak something else may be ignored (RFC 9110)."""

    def _refuse(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        body = msgspec.json.encode(problem.document)
        head = (
            f"HTTP/1.1 {problem.status} {problem.document.title}\r\n"
            f"content-type: {PROBLEM_TYPE}\r\ncontent-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    # Bodies

    def on_body(self, body: bytes) -> None:
        self._stretch_bytes += len(body)
        if self.cycle.response_complete:
            # A little more is taken, so that the client comes to read its answer.
            self._discarded_bytes += len(body)
            if self._discarded_bytes > limits.DISCARDED_BYTES_MAX:
                self.transport.abort()
            return
        super().on_body(body)

    # Answers

    def pause_writing(self) -> None:
        self._unread_since = self.loop.time()
        self._unread_bytes = self.transport.get_write_buffer_size()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    # Overdue

    def check(self, now: float) -> None:
        if self._is_answer_late(now):
            # Its answer can't be sent, so neither can an explanation.
            self.transport.abort()
        elif self.transport.is_closing():
            return
        elif self.pipeline and _has_hung_up(self.transport):
            # Nothing is read while a request waits behind another, so nobody else sees this.
            self.transport.abort()
        elif self._head_since is not None and now - self._head_since > limits.HEADERS_S_MAX:
            self._refuse(Problem(408, "The head of the request did not come in time."))
        elif self._is_body_late(now):
            if self.cycle.response_started:
                self.transport.abort()
                return
            self._refuse(Problem(408, "The body of the request did not come in time."))

    def _is_answer_late(self, now: float) -> bool:
        if self._unread_since is None:
            return False
        left = self.transport.get_write_buffer_size()
        if self._unread_bytes - left >= limits.UNREAD_S_MAX * limits.BYTES_PER_S_MIN:
            self._unread_since, self._unread_bytes = now, left
        return now - self._unread_since > limits.UNREAD_S_MAX

    def _is_body_late(self, now: float) -> bool:
        if not self._is_body_open:
            return False
        if self.flow.read_paused:
            # It is we who do not read: the time since the last look does not count.
            self._body_since += CHECK_S
            self._stretch_since, self._stretch_bytes = now, 0
            return False
        if now - self._body_since > limits.BODY_S_MAX:
            return True
        took = now - self._stretch_since
        if took < limits.BODY_PAUSE_S_MAX:
            return False
        is_slow = self._stretch_bytes < took * limits.BYTES_PER_S_MIN
        self._stretch_since, self._stretch_bytes = now, 0
        return is_slow


def _has_hung_up(transport: asyncio.Transport) -> bool:
    """Whether the client has ended the connection, also if there is something to read before. Where
    the system can't say that, only if the connection failed."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))


def _large_head() -> Problem:
    detail = f"The head of the request is larger than {limits.HEADER_BYTES_MAX:,} bytes."
    return Problem(431, detail, reason="head_too_large")


class HttpServer(uvicorn.Server):
    """Serves an application on sockets that listen already, until `stop`."""

    def __init__(self, app: Any, sockets: Sequence[socket.socket], drain_s: float) -> None:
        config = uvicorn.Config(
            app,
            http=GuardedConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=limits.KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(drain_s),
        )
        super().__init__(config)
        self._listening = list(sockets)
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process has its own way with signals."""
        yield

    async def run_until_stopped(self) -> None:
        self._check()
        try:
            await self.serve(self._listening)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def stop(self) -> None:
        """Accepts no more, and answers what is in flight."""
        self.should_exit = True

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(CHECK_S, self._check)
        now = loop.time()
        for connection in list(self.server_state.connections):
            if isinstance(connection, GuardedConnection):
                connection.check(now)


assert issubclass(httptools.HttpParserCallbackError, httptools.HttpParserError)
