"""Questions between nodes, each with one answer: a method's name and bytes, bytes back.

A refusal travels with its reason and sentence. What was asked may have been done although no
answer came: anyone who asks must be able to find out, or to ask again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Final

from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId
from penstock.replication.peer_frames import DecodeError, FrameReader
from penstock.replication.peer_link import PeerLink

CALL: Final = 40
REPLY: Final = 41
REFUSAL: Final = 42
# Of one node that are being answered at a time; beyond it they are refused.
CALLS_SERVED_PER_NODE_MAX: Final = 1_000

_HEAD: Final = Struct(">BQ")
_NUMBER: Final = Struct(">Q")

Handler = Callable[[BrokerId, bytes], Awaitable[bytes]]

logger = logging.getLogger(__name__)


class Calls:
    def __init__(self, own: BrokerId) -> None:
        self._own = own
        self._handlers: dict[str, Handler] = {}
        self._number = 0
        # What waits for an answer, by node and number.
        self._waiting: dict[tuple[BrokerId, int], asyncio.Future[bytes]] = {}
        self._serving: dict[asyncio.Task[None], BrokerId] = {}
        self._serving_count: dict[BrokerId, int] = {}

    def serve(self, method: str, handler: Handler) -> None:
        assert method not in self._handlers, f"{method} is already served"
        self._handlers[method] = handler

    # Asking

    async def call(
        self,
        link: PeerLink | None,
        node: BrokerId,
        method: str,
        payload: bytes,
        timeout_s: float,
    ) -> bytes:
        if node == self._own:
            return await self._call_own(method, payload, timeout_s)
        if link is None:
            raise Refused(Reason.LEADER_NOT_AVAILABLE, f"Node {node} is not connected.")
        self._number += 1
        key = (node, self._number)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[key] = answer
        writer = link.writer()
        writer.write(_HEAD.pack(CALL, self._number))
        writer.write_text(method)
        writer.write_bytes(payload)
        try:
            return await _within(answer, timeout_s, f"Node {node} did not answer in time.")
        finally:
            self._waiting.pop(key, None)

    async def _call_own(self, method: str, payload: bytes, timeout_s: float) -> bytes:
        loop = asyncio.get_running_loop()
        answering = loop.create_task(self._answer(self._own, method, payload))
        return await _within(answering, timeout_s, "This node did not answer in time.")

    def disconnected(self, node: BrokerId) -> None:
        """Nobody knows whether what was asked has been done."""
        detail = f"The connection to node {node} was lost before it answered."
        for (asked, _), answer in list(self._waiting.items()):
            if asked == node and not answer.done():
                answer.set_exception(Refused(Reason.REQUEST_TIMED_OUT, detail))

    def stop(self) -> None:
        for task in list(self._serving):
            task.cancel()

    # Answering

    async def _answer(self, node: BrokerId, method: str, payload: bytes) -> bytes:
        handler = self._handlers.get(method)
        if handler is None:
            raise Refused(Reason.UNSUPPORTED_VERSION, f"Node {self._own} does not know {method}.")
        return bytes(await handler(node, payload))

    def read_call(self, link: PeerLink, reader: FrameReader) -> None:
        (number,) = reader.unpack(_NUMBER)
        method = reader.text()
        payload = bytes(reader.read_bytes())
        count = self._serving_count.get(link.node, 0)
        if count >= CALLS_SERVED_PER_NODE_MAX:
            _write_refusal(link, number, Refused(Reason.THROTTLED, "Too many calls at once."))
            return
        self._serving_count[link.node] = count + 1
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._serve(link, number, method, payload))
        self._serving[task] = link.node
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving_count[self._serving.pop(task)] -= 1

    async def _serve(self, link: PeerLink, number: int, method: str, payload: bytes) -> None:
        try:
            answer = await self._answer(link.node, method, payload)
        except Refused as refused:
            _write_refusal(link, number, refused)
        except Exception:
            logger.exception("answering %s of node %d failed", method, link.node)
            detail = f"Node {self._own} failed to answer {method}."
            _write_refusal(link, number, Refused(Reason.UNKNOWN_SERVER_ERROR, detail))
        else:
            if link.is_open:
                writer = link.writer()
                writer.write(_HEAD.pack(REPLY, number))
                writer.write_bytes(answer)

    # Answers

    def read_reply(self, node: BrokerId, reader: FrameReader) -> None:
        (number,) = reader.unpack(_NUMBER)
        payload = bytes(reader.read_bytes())
        answer = self._waiting.get((node, number))
        if answer is not None and not answer.done():
            answer.set_result(payload)

    def read_refusal(self, node: BrokerId, reader: FrameReader) -> None:
        (number,) = reader.unpack(_NUMBER)
        name, detail = reader.text(), reader.text()
        reason = _REASONS.get(name)
        if reason is None:
            raise DecodeError(f"there is no reason {name!r}")
        answer = self._waiting.get((node, number))
        if answer is not None and not answer.done():
            answer.set_exception(Refused(reason, detail))


_REASONS: Final = {reason.name: reason for reason in Reason}


def _write_refusal(link: PeerLink, number: int, refused: Refused) -> None:
    if link.is_open:
        writer = link.writer()
        writer.write(_HEAD.pack(REFUSAL, number))
        writer.write_text(refused.reason.name)
        writer.write_text(refused.detail)


async def _within(answer: asyncio.Future[bytes], timeout_s: float, detail: str) -> bytes:
    """The answer, or Refused when it takes too long."""
    is_late = False

    def give_up() -> None:
        nonlocal is_late
        is_late = True
        answer.cancel()

    timer = asyncio.get_running_loop().call_later(timeout_s, give_up)
    try:
        return await answer
    except asyncio.CancelledError:
        if is_late:
            raise Refused(Reason.REQUEST_TIMED_OUT, detail) from None
        answer.cancel()
        raise
    finally:
        timer.cancel()
