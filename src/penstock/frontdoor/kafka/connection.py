"""One Kafka client's connection: finds the API, calls its handler, replies in request order.

A request starts once all earlier ones are answered, as on Kafka: it sees what they did. Only
produces start behind produces that wait, or pipelined ones could not share a sync.

Most answers are there when the handler returns and go straight into the send queue. A call that
must wait stands in line, and whatever is answered behind it waits with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.later import Later, Task
from penstock.frontdoor.kafka.api import Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Refused
from penstock.model.file_ranges import FileRange
from penstock.net.frame_connection import (
    PAUSE_CALLS,
    PAUSE_PRESSURE,
    FrameConnection,
    PeerFault,
    Surroundings,
)
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import DecodeError
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.headers import decode_request_header
from penstock.protocol.kafka.produce_bytes import NO_FORM

if TYPE_CHECKING:
    import asyncio
    import socket

    from penstock.broker.services import Services
    from penstock.frontdoor.kafka.api import Memory
    from penstock.frontdoor.kafka.fetch_sessions import FetchSessions
    from penstock.frontdoor.kafka.routes import Reply, Route, Routes
    from penstock.frontdoor.kafka.shares import Shares
    from penstock.frontdoor.kafka.telemetry import Telemetry
    from penstock.model.endpoint import Endpoint
    from penstock.observe.instruments import Requests

_REQUEST_START_SIZE: Final = 8
_unpack_start = Struct(">Ii").unpack_from
_pack_start = Struct(">ii").pack

# As Kafka calls what old clients don't tell.
UNKNOWN_SOFTWARE: Final = ("unknown", "unknown")
# Of the requests that are not like those before them, one in this many is learned from.
REQUESTS_PER_FORM: Final = 32

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorParts:
    """What all Kafka connections share."""

    surroundings: Surroundings
    services: Services
    fetch_sessions: FetchSessions
    shares: Shares
    telemetry: Telemetry
    routes: Routes
    # The body that answers an ApiVersions request in a version that we don't know.
    unsupported_body: bytes
    on_closed: Callable[[KafkaConnection], None]
    # Calls back once the answers are there that come together.
    soon: Callable[[Callable[[], None]], object]
    # Asks to be relieved when the unflushed bytes are below their limit again.
    await_relief: Callable[[KafkaConnection], None]


class ServedCall(Call):
    """A call with what the connection must remember of it until its reply is sent."""

    __slots__ = ("correlation_id", "later", "reply", "request", "route", "size")

    route: Route
    request: Any
    correlation_id: int
    # How many bytes of the memory budget it holds while it waits.
    size: int
    later: Later[Any] | None
    reply: Reply | None

    def failed(self, code: int) -> None:
        if self.route.requests is not None:
            self.route.requests.failed(ErrorCode(code).name)


class KafkaConnection:
    """Handlers see it as their `Peer`; the socket below sees it as its `Receiver`."""

    __slots__ = (
        "_calls_max",
        "_form",
        "_form_route",
        "_line",
        "_link",
        "_now",
        "_parts",
        "_routes",
        "_send_is_due",
        "_services",
        "_unlike",
        "fetch_sessions",
        "id",
        "memory",
        "opened_at",
        "peer_host",
        "peer_port",
        "shares",
        "software",
        "telemetry",
    )

    def __init__(
        self, connection_id: int, sock: socket.socket, peer: Endpoint, parts: DoorParts
    ) -> None:
        self.id = connection_id
        self._now = parts.surroundings.clock.monotonic
        self.opened_at = self._now()
        self.peer_host = peer.host
        self.peer_port = peer.port
        self._parts = parts
        self._services = parts.services
        self.fetch_sessions = parts.fetch_sessions
        self.shares = parts.shares
        self.telemetry = parts.telemetry
        self.software = UNKNOWN_SOFTWARE
        self._routes = parts.routes
        self._calls_max = parts.surroundings.limits.requests_in_flight_per_connection_max
        # Calls in request order, from the first that waits for its answer on. It is short, and an
        # empty deque would take more memory than all else here.
        self._line: list[ServedCall] = []
        self._send_is_due = False
        # What its last requests had in common, where that is known, and how many were unlike it.
        self._form = NO_FORM
        self._form_route: Route | None = None
        self._unlike = 0
        self.memory: Memory | None = None
        self._link = FrameConnection(sock, peer, self, parts.surroundings)

    # What the door uses

    @property
    def is_busy(self) -> bool:
        return bool(self._line)

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        return [call.later.task for call in self._line if isinstance(call.later, Task)]

    def check(self, now: float) -> None:
        self._link.check(now)

    def relieve(self) -> None:
        self._link.resume(PAUSE_PRESSURE)

    def drain(self) -> None:
        """Answers long polls at once, lets the other calls end, then closes."""
        for call in list(self._line):
            self._answer_early(call)
        self._send_answered()
        self._link.drain()

    def give_up(self) -> None:
        """Answers all that still waits, whatever becomes of it: its client has to ask elsewhere."""
        for call in list(self._line):
            if call.reply is None:
                self._answer_without_it(call, ErrorCode.REQUEST_TIMED_OUT)
        self._send_answered()

    def close(self, why: str | None = None) -> None:
        self._link.close(why)

    # Requests

    def on_frame(self, frame: memoryview, now: float) -> bool:
        if len(frame) < _REQUEST_START_SIZE:
            raise PeerFault(f"a frame of {len(frame)} bytes is not a request")
        number, correlation_id = _unpack_start(frame)
        route = self._routes.get(number)
        if self._line and not _may_join(self._line[0], route):
            return False
        if route is None:
            self._refuse(number, correlation_id)
            return True
        api = route.api
        form = self._form
        if route is self._form_route and (request := form.recall(frame)) is not None:
            call = ServedCall(self._services, api.key, route.version, form.client_id, self, now)
            call.request = request
        else:
            call = self._decode(route, frame, now)
        call.route = route
        call.correlation_id = correlation_id
        self._serve(call, len(frame))
        form.last.records = None
        if api.adds_pressure and self._services.pressure.is_over:
            self._link.pause(PAUSE_PRESSURE)
            self._parts.await_relief(self)
        return True

    def _decode(self, route: Route, frame: memoryview, now: float) -> ServedCall:
        api = route.api
        try:
            header, position = decode_request_header(frame)
            client_id = header.client_id
            call = ServedCall(self._services, api.key, route.version, client_id, self, now)
            request = call.request = route.decode(call, frame, position, route.request)
        except DecodeError as error:
            raise PeerFault(f"bad {route} request: {error}") from None
        if api.learn is not None:
            # Who writes to many topics in turn would only lose time by learning each.
            if self._unlike % REQUESTS_PER_FORM == 0:
                form = api.learn(request, route.version, frame, position, client_id)
                if form is not None:
                    self._form, self._form_route = form, route
            self._unlike += 1
        return call

    def _refuse(self, number: int, correlation_id: int) -> None:
        """Clients find out with ApiVersions what we speak, so that one is always answered."""
        api_key, version = number >> 16, number & 0xFFFF
        if api_key != ApiKey.API_VERSIONS:
            raise PeerFault(f"API {api_key} in version {version} is not served")
        body = self._parts.unsupported_body
        assert not self._line, "it starts only when all before it are answered"
        self._push(_pack_start(4 + len(body), correlation_id) + body)

    def _serve(self, call: ServedCall, size: int) -> None:
        try:
            result = call.route.handle(call, call.request)
        except Exception as error:
            reply = self._reply_to_error(call, error)
        else:
            if not isinstance(result, Later):
                reply = self._encode(call, result)
            elif result.is_settled:
                reply = self._encode_outcome(call, result)
            else:
                self._wait(call, result, size)
                return
        self._deliver(call, reply)

    def _deliver(self, call: ServedCall, reply: Reply) -> None:
        if self._line:
            self._stand_in_line(call, reply)
            return
        requests = call.route.requests
        if requests is not None:
            requests.seconds.observe(self._now() - call.now)
        self._push(reply)

    def _stand_in_line(self, call: ServedCall, reply: Reply | None) -> None:
        call.size = 0
        call.later = None
        call.reply = reply
        line = self._line
        line.append(call)
        if len(line) >= self._calls_max:
            self._link.pause(PAUSE_CALLS)

    # Answers that come later

    def _wait(self, call: ServedCall, later: Later[Any], size: int) -> None:
        self._stand_in_line(call, None)
        call.later = later
        call.size = size
        self._link.hold(size)
        later.then(self._settled, call)

    def _settled(self, call: ServedCall, later: Later[Any]) -> None:
        self._answer(call, self._encode_outcome(call, later))

    def _answer(self, call: ServedCall, reply: Reply) -> None:
        call.reply = reply
        line = self._line
        # An answer that could only be told by closing has emptied the line.
        if not line or call is not line[0] or self._send_is_due:
            return
        if len(line) == 1:
            # No other answer can join it, so it need not wait for the next turn of the loop.
            self._send_now()
            return
        # A burst of answers, as after a group commit, leaves in one go.
        self._send_is_due = True
        self._parts.soon(self._send_answered)

    def _send_now(self) -> None:
        """Inside the call of somebody else, whom a bug of ours must not reach."""
        try:
            self._send_answered()
        except Exception:
            self._link.fail()

    def _answer_early(self, call: ServedCall) -> None:
        if call.reply is not None:
            return
        code = call.route.api.drain_code
        if code is not None:
            self._answer_without_it(call, code)

    def _answer_without_it(self, call: ServedCall, code: ErrorCode) -> None:
        """Answers a call whose own answer has not come."""
        call.reply = self._error_reply(call, code)
        if call.later is not None:
            call.later.cancel()

    def _send_answered(self) -> None:
        self._send_is_due = False
        line = self._line
        parts: list[bytes | FileRange] = []
        answered = released = 0
        # One look at the clock for all that leave together; those that also came together took
        # the same time, and are counted at once.
        now = self._now()
        counted: Requests | None = None
        since, alike = 0.0, 0
        for call in line:
            reply = call.reply
            if reply is None:
                break
            answered += 1
            requests = call.route.requests
            if requests is not None:
                if call.now is since and requests is counted:
                    alike += 1
                else:
                    if counted is not None:
                        counted.seconds.observe(now - since, alike)
                    counted, since, alike = requests, call.now, 1
            released += call.size
            if isinstance(reply, bytes):
                parts.append(reply)
            else:
                parts += reply
        if counted is not None:
            counted.seconds.observe(now - since, alike)
        del line[:answered]
        if len(parts) == 1 and isinstance(parts[0], bytes):
            self._link.send(parts[0])
        else:
            self._push(parts)
            self._link.flush()
        if released:
            self._link.let_go(released)
        if not line:
            self._link.resume(PAUSE_CALLS)
            self._link.go_on()
        elif len(line) <= self._calls_max // 2:
            self._link.resume(PAUSE_CALLS)

    # Replies

    def _push(self, reply: Reply) -> None:
        if self._link.is_closed:
            _discard(reply)
        elif isinstance(reply, bytes):
            self._link.push(reply)
        else:
            self._link.extend(reply)

    def _encode(self, call: ServedCall, answer: Any) -> Reply:
        try:
            return call.route.encode_answer(call, call.request, answer, call.correlation_id)
        except Exception as error:
            return self._reply_to_error(call, error)

    def _encode_outcome(self, call: ServedCall, later: Later[Any]) -> Reply:
        if later.error is not None:
            return self._reply_to_error(call, later.error)
        return self._encode(call, later.answer)

    def _reply_to_error(self, call: ServedCall, error: Exception) -> Reply:
        if isinstance(error, Refused):
            return self._error_reply(call, error_code(error), error.detail)
        logger.error("%s failed, which is a bug", call.route, exc_info=error)
        return self._error_reply(call, ErrorCode.UNKNOWN_SERVER_ERROR, "internal error")

    def _error_reply(self, call: ServedCall, code: ErrorCode, why: str = "") -> Reply:
        """Closes the connection instead if the API has no way to say that all of it failed."""
        route = call.route
        if code:
            call.failed(code)
        try:
            response = route.api.refusal(call, call.request, code)
            if response is not None:
                return route.encode_message(response, call.correlation_id)
            self._link.close(f"its {route} was refused: {why or code.name}")
        except Exception:
            self._link.fail()
        return []

    # The end

    def on_closed(self) -> None:
        line, self._line = self._line, []
        for call in line:
            if call.reply is not None:
                _discard(call.reply)
            elif call.later is not None:
                call.later.cancel()
        if self.memory is not None:
            self.memory.close()
        self.shares.connection_closed(self.id)
        self.telemetry.closed(self.id)
        self._parts.on_closed(self)


def _may_join(first: ServedCall, route: Route | None) -> bool:
    """Whether a request may start while calls before it wait, of which this is the first."""
    return route is not None and route.api.is_pipelined and first.route.api is route.api


def _discard(reply: Reply) -> None:
    if isinstance(reply, list):
        for part in reply:
            if isinstance(part, FileRange):
                part.release()
