"""Questions and answers between two processes on one machine, over a connected pair of sockets.

A frame is a length, a kind, the number of a call, and what belongs to that kind:

    CALL      the method's name and the payload
    REPLY     the payload
    REFUSAL   the reason's name and a sentence
    CANCEL    nothing: the asker does not want the answer any more

Both ends may ask. Many calls are under way at a time and are answered in any order. Frames of one
turn of the loop leave in one system call. Nothing piles up without a bound: an asker waits while
too many of its calls are under way or the other end reads too slowly, and an end whose answers are
not read stops reading. When the connection ends, every call under way is refused with
REQUEST_TIMED_OUT, because nobody knows whether it was carried out.

There is no checksum and no authentication, as there is between nodes (replication/peer_frames.py):
the bytes never leave the machine, and the pair is inherited, so that nobody else can open it.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Final, cast

from penstock.model.errors import Reason, Refused
from penstock.model.limits import MIB

CALL: Final = 1
REPLY: Final = 2
REFUSAL: Final = 3
CANCEL: Final = 4

# An end that gets a longer frame closes the connection: the other one has lost its place.
FRAME_BYTES_MAX: Final = 128 * MIB
# Of one asker; further ones wait for their turn.
CALLS_UNDER_WAY_MAX: Final = 20_000
# Unsent bytes from which on askers wait, and an end does not read what would make more of them.
UNSENT_BYTES_HIGH: Final = 8 * MIB
UNSENT_BYTES_LOW: Final = 2 * MIB
METHOD_BYTES_MAX: Final = 255

_HEAD: Final = Struct(">IBI")
# Of a frame behind its length.
_BODY_BYTES_MIN: Final = 5
_LENGTH_BYTES: Final = 4
_NUMBERS: Final = 2**32

# Answers a call, by its method's name and payload; may raise Refused.
Serve = Callable[[str, bytes], Awaitable[bytes]]

logger = logging.getLogger(__name__)


class CallChannel(asyncio.Protocol):
    """One end. `serve` answers what the other end asks; without it every call is refused."""

    def __init__(
        self, serve: Serve | None = None, on_closed: Callable[[], None] = lambda: None
    ) -> None:
        self._serve = serve
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._unsent: list[bytes] = []
        self._number = 0
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._served: dict[int, asyncio.Task[None]] = {}
        # Calls that wait for their turn, in order.
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_blocked = False
        self.is_closed = False

    @classmethod
    async def open(
        cls,
        sock: socket.socket,
        serve: Serve | None = None,
        on_closed: Callable[[], None] = lambda: None,
    ) -> "CallChannel":
        """Takes over a connected socket."""
        channel = cls(serve, on_closed)
        await asyncio.get_running_loop().create_unix_connection(lambda: channel, sock=sock)
        return channel

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Asking

    async def call(self, method: str, payload: bytes, timeout_s: float) -> bytes:
        """The answer; raises Refused, also when none comes in time. If the task that waits is
        cancelled, the other end stops to work on it."""
        if self._is_full:
            await self._wait_for_turn(timeout_s)
        if self.is_closed:
            raise Refused(Reason.LEADER_NOT_AVAILABLE, "The broker's process has ended.")
        number = self._next_number()
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._asked[number] = answer
        name = method.encode()
        self._send(CALL, number, bytes((len(name),)) + name, payload)
        timer = self._loop.call_later(timeout_s, _expire, answer, timeout_s)
        try:
            return await answer
        finally:
            timer.cancel()
            # What has no answer yet gave up, or was given up.
            if self._asked.pop(number, None) is not None and not _has_answer(answer):
                self._send(CANCEL, number)
            self._wake()

    @property
    def _is_full(self) -> bool:
        is_full = self._is_blocked or len(self._asked) >= CALLS_UNDER_WAY_MAX
        return is_full and not self.is_closed

    async def _wait_for_turn(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while self._is_full:
                    turn: asyncio.Future[None] = self._loop.create_future()
                    self._waiting.append(turn)
                    await turn
        except TimeoutError:
            raise Refused(Reason.THROTTLED, "Too many calls are under way.") from None
        finally:
            # One that gave up after it was woken must not keep the turn from the next.
            self._wake()

    def _wake(self) -> None:
        """As many as there is room for; those who gave up meanwhile do not count."""
        if self._is_blocked and not self.is_closed:
            return
        room = CALLS_UNDER_WAY_MAX - len(self._asked)
        while self._waiting and (room > 0 or self.is_closed):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                room -= 1

    def _next_number(self) -> int:
        while True:
            self._number = (self._number + 1) % _NUMBERS
            if self._number not in self._asked:
                return self._number

    # Sending

    def _send(self, kind: int, number: int, *parts: bytes) -> None:
        if self.is_closed:
            return
        length = _BODY_BYTES_MIN + sum(map(len, parts))
        assert length <= FRAME_BYTES_MAX, "a call must be bounded before it gets here"
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(_HEAD.pack(length, kind, number))
        self._unsent += parts

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._transport is not None and not self.is_closed:
            self._transport.writelines(unsent)

    def pause_writing(self) -> None:
        """Answers are what this end writes most: it reads no more calls until they are read."""
        self._is_blocked = True
        if self._serve is not None and self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._wake()
        if self._serve is not None and self._transport is not None:
            self._transport.resume_reading()

    # Receiving

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is one too, but does not say so.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH, low=UNSENT_BYTES_LOW)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        position, end = 0, len(received)
        try:
            while end - position >= _HEAD.size:
                length, kind, number = _HEAD.unpack_from(received, position)
                if not _BODY_BYTES_MIN <= length <= FRAME_BYTES_MAX:
                    raise ValueError(f"a frame can't have {length} bytes")
                after = position + _LENGTH_BYTES + length
                if after > end:
                    break
                body = bytes(memoryview(received)[position + _HEAD.size : after])
                position = after
                self._take(kind, number, body)
        except (ValueError, IndexError) as bad:
            logger.error("the channel to the other process is closed: %s", bad)
            self.close()
            return
        del received[:position]

    def _take(self, kind: int, number: int, body: bytes) -> None:
        if kind == REPLY:
            self._settle(number, lambda answer: answer.set_result(body))
        elif kind == CALL:
            self._start(number, body)
        elif kind == REFUSAL:
            refused = _read_refusal(body)
            self._settle(number, lambda answer: answer.set_exception(refused))
        elif kind == CANCEL:
            task = self._served.get(number)
            if task is not None:
                task.cancel()
        else:
            raise ValueError(f"there is no kind {kind} of frame")

    def _settle(self, number: int, act: Callable[["asyncio.Future[bytes]"], None]) -> None:
        answer = self._asked.get(number)
        if answer is not None and not answer.done():
            act(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        for task in list(self._served.values()):
            task.cancel()
        detail = "The other process ended before it answered."
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(Refused(Reason.REQUEST_TIMED_OUT, detail))
        self._wake()
        self._on_closed()

    # Answering

    def _start(self, number: int, body: bytes) -> None:
        name_end = 1 + body[0]
        method, payload = body[1:name_end].decode(), body[name_end:]
        task = self._loop.create_task(self._answer(number, method, payload))
        self._served[number] = task
        task.add_done_callback(lambda _: self._forget(number, task))

    def _forget(self, number: int, task: "asyncio.Task[None]") -> None:
        if self._served.get(number) is task:
            del self._served[number]

    async def _answer(self, number: int, method: str, payload: bytes) -> None:
        try:
            if self._serve is None:
                raise Refused(Reason.UNSUPPORTED_VERSION, f"There is no {method} here.")
            answer = await self._serve(method, payload)
        except Refused as refused:
            self._refuse(number, refused)
        except Exception:
            logger.exception("answering %s failed", method)
            detail = f"The broker failed to answer {method}; its log says why."
            self._refuse(number, Refused(Reason.UNKNOWN_SERVER_ERROR, detail))
        else:
            self._send(REPLY, number, answer)

    def _refuse(self, number: int, refused: Refused) -> None:
        name = refused.reason.name.encode()
        self._send(REFUSAL, number, bytes((len(name),)) + name, refused.detail.encode())


def _expire(answer: "asyncio.Future[bytes]", timeout_s: float) -> None:
    if not answer.done():
        detail = f"There was no answer within {timeout_s:g} s."
        answer.set_exception(_Late(Reason.REQUEST_TIMED_OUT, detail))


class _Late(Refused):
    """Refused by this end itself: the other one still works on it."""


def _has_answer(answer: "asyncio.Future[bytes]") -> bool:
    is_late = not answer.cancelled() and answer.done() and isinstance(answer.exception(), _Late)
    return answer.done() and not answer.cancelled() and not is_late


_REASONS: Final = {reason.name: reason for reason in Reason}


def _read_refusal(body: bytes) -> Refused:
    name_end = 1 + body[0]
    reason = _REASONS.get(body[1:name_end].decode())
    if reason is None:
        raise ValueError(f"there is no reason {body[1:name_end]!r}")
    return Refused(reason, body[name_end:].decode(errors="replace"))
