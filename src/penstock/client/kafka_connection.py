"""Speaks Kafka's protocol over one connection, for what confluent-kafka has no call for.

Every request sent through here may be sent twice: when a broker goes away before it has
answered, the next address is asked.
"""

import time
from types import TracebackType
from typing import Self, TypeVar

from penstock.client.connection import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    DEFAULT_BOOTSTRAP,
    reason_of_failure,
    split_address,
)
from penstock.client.errors import BrokerUnreachable, ClientError, no_answer
from penstock.client.wire.errors import Malformed
from penstock.client.wire.link import Link

RETRY_PAUSE_S = 0.1

Answer = TypeVar("Answer")


class KafkaConnection:
    """One question after the other to the first broker of `bootstrap` that answers."""

    def __init__(
        self, bootstrap: str = DEFAULT_BOOTSTRAP, *, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s
        self._addresses = [one for part in bootstrap.split(",") if (one := part.strip())]
        self._at = 0
        self._link: Link | None = None
        self._was_connected = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def ask(self, request: object, answer: type[Answer]) -> Answer:
        """The broker's answer; raises ClientError when nobody gives one in time."""
        deadline = time.monotonic() + self.timeout_s
        # What refuses the first connection of all will hardly have changed in a second.
        is_patient = self._was_connected
        while True:
            try:
                if self._link is None:
                    self._link = self._connect()
                return self._link.ask(request, answer)
            except (OSError, BrokerUnreachable) as error:
                self.close()
                self._at += 1
                if not is_patient or time.monotonic() > deadline:
                    raise self._failure(error) from None
            except Malformed:
                self.close()
                raise
            time.sleep(RETRY_PAUSE_S)

    def _failure(self, error: OSError | BrokerUnreachable) -> ClientError:
        if isinstance(error, BrokerUnreachable):
            return error
        return no_answer(self.bootstrap, reason_of_failure(error, self.timeout_s))

    def _connect(self) -> Link:
        """A link to the first address that accepts one and says what it speaks."""
        reason = "the address is empty"
        for attempt in range(len(self._addresses)):
            address = self._addresses[(self._at + attempt) % len(self._addresses)]
            try:
                link = self._open(address)
            except OSError as error:
                reason = reason_of_failure(error, self.timeout_s)
            else:
                self._at += attempt
                self._was_connected = True
                return link
        raise no_answer(self.bootstrap, reason)

    def _open(self, address: str) -> Link:
        host, port = split_address(address)
        return Link.open(
            host,
            port,
            name=self.bootstrap,
            connect_timeout_s=min(self.timeout_s, CONNECT_TIMEOUT_S),
            # A broker that hangs must leave time to ask the others.
            answer_timeout_s=self.timeout_s / len(self._addresses),
        )
