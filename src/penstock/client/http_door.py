"""Asks HTTP doors, with nothing but the standard library: those of a cluster, or a registry's.

Any node answers for the whole cluster, so the one that answered last is asked first, and the next
one when that does not answer. What a door refuses is a `HttpRefused`; that nobody answered is a
`BrokerUnreachable`.
"""

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from penstock.client.connection import CONNECT_TIMEOUT_S, reason_of_failure, split_address
from penstock.client.errors import BrokerUnreachable, ClientError

JSON: Final = "application/json"
ANSWER_BYTES_MAX: Final = 256 << 20
# Between two rounds over all doors.
PAUSE_S: Final = 0.5
# The same request may succeed a moment later, or through another node.
_PASSING: Final = frozenset({429, 502, 503, 504})
# A time-out of nothing would mean that a socket does not wait at all.
_MOMENT_S: Final = 0.001
_GOOD: Final = range(200, 300)


class Place(NamedTuple):
    """Where a door is, and what its paths begin with."""

    host: str
    port: int
    is_tls: bool = False
    prefix: str = ""

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self.is_tls else http.client.HTTPConnection
        return kind(self.host, self.port, timeout=timeout_s)


# Looks for doors, within some seconds; raises ClientError.
Find = Callable[[float], Sequence[Place]]


class HttpRefused(ClientError):
    """The door answered with a problem (RFC 9457): `reason` is a word for programs, and `document`
    is all of the answer."""

    def __init__(
        self, detail: str, *, status: int, reason: str, document: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.document = document or {}

    @property
    def is_passing(self) -> bool:
        return self.status in _PASSING


class HttpDoor:
    """Every question has a connection of its own; several threads may ask at a time."""

    def __init__(
        self,
        find: Find,
        *,
        name: str,
        is_repeatable: bool,
        rounds: int = 1,
        content_type: str = JSON,
    ) -> None:
        """`name` says who is asked, as in "HTTP door answers at 127.0.0.1:9094". A question that
        was sent and not answered is sent to the next door only if it `is_repeatable`. All doors
        are asked again in up to `rounds` rounds, while what is wrong may pass."""
        self._find = find
        self._name = name
        self._is_repeatable = is_repeatable
        self._rounds = rounds
        self._content_type = content_type
        # All that were found, the one to ask first at the front. Replaced, never changed.
        self._known: tuple[Place, ...] = ()

    @classmethod
    def at(cls, addresses: str, *, is_repeatable: bool) -> "HttpDoor":
        """The doors at HOST:PORT, separated by commas."""
        places = [Place(*split_address(each.strip())) for each in addresses.split(",")]
        name = f"HTTP door answers at {addresses}"
        return cls(lambda _: places, name=name, is_repeatable=is_repeatable)

    def ask(self, method: str, path: str, body: object, timeout_s: float) -> Any:
        """The answer as JSON, or None if it is empty, within a time for all doors together.

        Raises HttpRefused, or BrokerUnreachable if no door answered; what was asked may have been
        done all the same."""
        deadline = time.monotonic() + timeout_s
        for number in range(1, self._rounds + 1):
            is_last = number == self._rounds or time.monotonic() + PAUSE_S >= deadline
            try:
                return self._ask_in_turn(method, path, body, deadline)
            except HttpRefused as refused:
                if is_last or not refused.is_passing:
                    raise
            except BrokerUnreachable:
                if is_last:
                    raise
            time.sleep(PAUSE_S)
        raise AssertionError("the last round returns or raises")

    def _ask_in_turn(self, method: str, path: str, body: object, deadline: float) -> Any:
        why = "no node has one"
        for place in self._in_turn(deadline):
            try:
                connection = _connected(place, deadline)
            except OSError as error:
                why = reason_of_failure(error, CONNECT_TIMEOUT_S)
                continue
            try:
                answer = self._exchange(connection, method, place.prefix + path, body)
            except (OSError, http.client.HTTPException) as error:
                why = _reason(error)
                # The next question begins elsewhere: this door may have taken long to fail.
                self._known = (*(each for each in self._known if each != place), place)
                if self._is_repeatable:
                    continue
                break
            finally:
                connection.close()
            self._known = (place, *(each for each in self._known if each != place))
            return _content(*answer)
        raise BrokerUnreachable(f"No {self._name}: {why}.")

    def _in_turn(self, deadline: float) -> Iterator[Place]:
        """Those that are known. Then what is found, because a cluster may have moved."""
        tried = self._known
        yield from tried
        if tried and time.monotonic() >= deadline:
            return
        found = tuple(self._find(max(0.1, deadline - time.monotonic())))
        self._known = found
        yield from (each for each in found if each not in tried)

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: object
    ) -> tuple[int, bytes]:
        headers = {"Accept": f"{self._content_type}, {JSON}"}
        if body is not None:
            headers["Content-Type"] = self._content_type
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, path, content, headers)
        answer = connection.getresponse()
        data = answer.read(ANSWER_BYTES_MAX + 1)
        if len(data) > ANSWER_BYTES_MAX:
            raise ClientError(f"The answer has more than {ANSWER_BYTES_MAX >> 20} MiB.")
        return answer.status, data


def _connected(place: Place, deadline: float) -> http.client.HTTPConnection:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    connection = place.connection(min(left_s, CONNECT_TIMEOUT_S))
    connection.connect()
    connection.sock.settimeout(max(_MOMENT_S, deadline - time.monotonic()))
    return connection


def _content(status: int, data: bytes) -> Any:
    try:
        content = json.loads(data) if data else None
    except ValueError:
        _refuse(status, {})
    if status not in _GOOD:
        _refuse(status, content if isinstance(content, dict) else {})
    return content


def _refuse(status: int, document: Mapping[str, Any]) -> NoReturn:
    detail = document.get("detail") or document.get("message")
    if not detail:
        detail = f"The server answered with status {status}, and not as Penstock does."
    reason = str(document.get("reason", "unknown"))
    raise HttpRefused(str(detail), status=status, reason=reason, document=document)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return reason_of_failure(error, 0.0)
    return "the answer is not HTTP, or ended early"
