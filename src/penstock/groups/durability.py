"""Waits for what a coordinator loads and stores, and says in the words of clients why it could
not be."""

import asyncio

from penstock.model.errors import Reason, Refused

_TOO_LARGE = (Reason.MESSAGE_TOO_LARGE, Reason.RECORD_LIST_TOO_LARGE)


async def durable(stored: asyncio.Future[None] | None) -> None:
    """Shielded: a client that goes away must not cancel a write that others wait for too. None is
    nothing to wait for."""
    if stored is None:
        return
    try:
        await asyncio.shield(stored)
    except Refused as refused:
        raise told_to_clients(refused) from refused


def told_to_clients(refused: Refused) -> Refused:
    """A write that failed is a passing state, and every client knows what to do when this node is
    not its coordinator: look for it and try again. Most do not expect a storage error here."""
    if refused.reason is Reason.COORDINATOR_LOAD_IN_PROGRESS:
        return refused
    if refused.reason in _TOO_LARGE:
        return Refused(Reason.UNKNOWN_SERVER_ERROR, refused.detail)
    return Refused(Reason.NOT_COORDINATOR, refused.detail)


def raise_refusal(stored: asyncio.Future[None]) -> None:
    """Of a write that nobody waits for: those that come after it fail with it."""
    if stored.done() and isinstance(refused := stored.exception(), Refused):
        raise told_to_clients(refused) from refused
    stored.add_done_callback(lambda done: done.exception())


class Waiters:
    """Requests that wait for one event, each for a while."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for waiter in waiting:
            _end(waiter)

    async def wait(self, timeout_s: float) -> None:
        """Also returns when the time is over."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.add(waiter)
        timer = loop.call_later(timeout_s, _end, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiting.discard(waiter)


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
