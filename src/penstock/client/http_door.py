"""Asks the HTTP door of a cluster, with nothing but the standard library.

Any node answers for the whole cluster, so it asks the one that answered last, and the next one when
that does not answer.
"""

import http.client
import json
import socket
from collections.abc import Mapping
from typing import Any, Final

from penstock.client.connection import reason_of_failure, split_address
from penstock.client.errors import BrokerUnreachable, ClientError

DEFAULT_HTTP: Final = "127.0.0.1:9094"
ANSWER_BYTES_MAX: Final = 16 << 20
# The same request may succeed a moment later, or through another node.
_PASSING: Final = frozenset({429, 503, 504})


class HttpRefused(ClientError):
    """The door answered with a problem (RFC 9457): `reason` is a word for programs."""

    def __init__(self, detail: str, *, status: int, reason: str) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason

    @property
    def is_passing(self) -> bool:
        return self.status in _PASSING


class HttpDoor:
    """Every question has a connection of its own; several threads may ask at a time."""

    def __init__(self, addresses: str = DEFAULT_HTTP) -> None:
        """`addresses` are HOST:PORT, separated by commas."""
        self._addresses = [split_address(each.strip()) for each in addresses.split(",")]
        self._given = addresses
        self._first = 0

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> Any:
        """The answer, or None if it is empty. Raises HttpRefused, or BrokerUnreachable if no node
        answered; what was asked may have been done all the same."""
        why = ""
        for number in range(len(self._addresses)):
            place = (self._first + number) % len(self._addresses)
            try:
                answer = self._ask(self._addresses[place], method, path, body, timeout_s)
            except (OSError, http.client.HTTPException) as error:
                why = _reason(error, timeout_s)
                continue
            self._first = place
            return answer
        # The next question begins elsewhere: this node may have taken long to fail.
        self._first = (self._first + 1) % len(self._addresses)
        raise BrokerUnreachable(f"No HTTP door answers at {self._given}: {why}.")

    def _ask(
        self,
        address: tuple[str, int],
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeout_s: float,
    ) -> Any:
        connection = http.client.HTTPConnection(*address, timeout=timeout_s)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            data = response.read(ANSWER_BYTES_MAX)
        finally:
            connection.close()
        if response.status >= 400:
            raise _refusal(response.status, data)
        return json.loads(data) if data else None


def _refusal(status: int, data: bytes) -> HttpRefused:
    try:
        problem = json.loads(data)
        return HttpRefused(str(problem["detail"]), status=status, reason=str(problem["reason"]))
    except (ValueError, TypeError, LookupError):
        detail = f"The server answered with status {status}, and not as Penstock does."
        return HttpRefused(detail, status=status, reason="unknown")


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError | socket.timeout):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, OSError):
        return reason_of_failure(error, timeout_s)
    return "the answer is not HTTP, or ended early"
