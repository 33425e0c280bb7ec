"""Asks the broker that started this process."""

from typing import Protocol, TypeVar

from penstock.broker.doors import calls
from penstock.broker.doors.calls import Call

A = TypeVar("A")

# For calls that say nothing about their time; longer than the broker itself takes to give up.
ASK_S_MAX = 30.0
# An answer may take so much longer than what the broker was asked to wait.
GRACE_S = 15.0


class Channel(Protocol):
    async def call(self, method: str, payload: bytes, timeout_s: float, /) -> bytes: ...


class Broker:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def ask(self, call: Call[A], wait_s: float = ASK_S_MAX) -> A:
        """The answer; raises Refused. `wait_s` is how long the broker itself may wait."""
        method = type(call).__name__
        payload = await self._channel.call(method, calls.encode(call), wait_s + GRACE_S)
        return calls.decode_answer(call, payload)
