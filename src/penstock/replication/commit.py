"""What the appends of one write job wait for: one object for all of them, settled in one go.

A task or a future per produce would cost more than the append itself; a list of callbacks that
runs once, when the disk is done, costs next to nothing.
"""

import asyncio
from collections.abc import Callable, Generator

from penstock.model.errors import Refused

Outcome = Callable[[Refused | None], None]


class Commit:
    """Settled once: with None when its batches are safe, with the refusal when they are not."""

    __slots__ = ("_callbacks", "error", "is_settled")

    def __init__(self) -> None:
        self._callbacks: list[Outcome] = []
        self.is_settled = False
        self.error: Refused | None = None

    def then(self, callback: Outcome) -> None:
        """Calls back on the loop once settled; at once if that is already so."""
        if self.is_settled:
            callback(self.error)
        else:
            self._callbacks.append(callback)

    def settle(self, error: Refused | None) -> None:
        assert not self.is_settled
        self.is_settled = True
        self.error = error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(error)
            except Exception as bug:
                # One waiter's bug must not leave the others waiting forever.
                report_bug("a waiter for a commit failed", bug)

    def __await__(self) -> Generator[object, None, None]:
        if not self.is_settled:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.then(lambda _: None if done.done() else done.set_result(None))
            yield from done
        if self.error is not None:
            raise self.error


def report_bug(message: str, bug: Exception) -> None:
    """Hands a bug to the loop's exception handler, which logs it."""
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": bug})
