"""An answer that comes later: what a use case returns where it can't answer at once.

It is delivered by a plain call, without the turn of the loop that a future takes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from penstock.model.errors import Reason, Refused

A = TypeVar("A")


class Later(Generic[A]):
    """Settled once, on the loop, with an answer or an error, unless nobody waits any more."""

    __slots__ = ("_answer", "_argument", "_deliver", "error", "is_settled")

    def __init__(self) -> None:
        self.is_settled = False
        self.error: Exception | None = None
        self._answer: A | None = None
        self._deliver: Callable[[Any, Later[A]], None] | None = None
        self._argument: Any = None

    @property
    def answer(self) -> A:
        """Of one that is settled without an error."""
        return self._answer  # type: ignore[return-value]  # no call per request

    def then(self, deliver: Callable[[Any, Later[A]], None], argument: Any) -> None:
        """Calls `deliver(argument, self)` once it is settled, which it must not be yet."""
        self._argument = argument
        self._deliver = deliver

    def settle(self, answer: A) -> None:
        if self.is_settled:
            self.drop(answer)
            return
        self._answer = answer
        self._end()

    def fail(self, error: Exception) -> None:
        if not self.is_settled:
            self.error = error
            self._end()

    def _end(self) -> None:
        self.is_settled = True
        deliver, argument = self._deliver, self._argument
        # What waits for it may hold it: a cycle per request would keep the garbage collector busy.
        self._deliver = self._argument = None
        if deliver is not None:
            deliver(argument, self)

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        self.is_settled = True
        self._deliver = self._argument = None

    def drop(self, answer: A) -> None:
        """Lets go of what an answer holds that came too late."""

    def __await__(self) -> Generator[object, None, A]:
        if not self.is_settled:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.then(_wake, done)
            try:
                yield from done
            except asyncio.CancelledError:
                if self.is_settled and self.error is None:
                    # The answer came in the same turn, and nobody takes it.
                    self.drop(self.answer)
                self.cancel()
                raise
        if self.error is not None:
            raise self.error
        return self.answer


def settled(answer: A) -> Later[A]:
    """An answer that is there already, where another time it may have to come later."""
    later: Later[A] = Later()
    later.settle(answer)
    return later


def _wake(done: asyncio.Future[None], _: Later[Any]) -> None:
    if not done.done():
        done.set_result(None)


class Task(Later[A]):
    """The answer of a coroutine, which ends when nobody waits for it any more."""

    __slots__ = ("task",)

    def __init__(self, coroutine: Coroutine[Any, Any, A]) -> None:
        super().__init__()
        loop = asyncio.get_running_loop()
        if sys.version_info >= (3, 12):
            self.task = asyncio.Task(coroutine, loop=loop, eager_start=True)
        else:
            # Before 3.12 a task can't take its first step at once, and doing that step in its
            # place is not safe: timeouts, for one, must find themselves inside a task.
            self.task = loop.create_task(coroutine)
        if self.task.done():
            self._finish(self.task)
        else:
            self.task.add_done_callback(self._finish)

    def cancel(self) -> None:
        super().cancel()
        self.task.cancel()

    def _finish(self, task: asyncio.Task[A]) -> None:
        if task.cancelled():
            self.fail(Refused(Reason.REQUEST_TIMED_OUT, "it was cancelled"))
            return
        error = task.exception()
        if error is None:
            self.settle(task.result())
        elif isinstance(error, Exception):
            self.fail(error)
        else:
            raise error
