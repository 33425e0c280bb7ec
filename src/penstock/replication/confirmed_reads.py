"""Who waits to hear that this replica still leads, and that what it then knew is applied."""

import asyncio

from penstock.model.errors import Refused
from penstock.model.ids import LogIndex
from penstock.raft.ready import Ready


class ConfirmedReads:
    __slots__ = ("_asked", "waiting")

    def __init__(self) -> None:
        self._asked: set[asyncio.Future[None]] = set()
        # A majority confirmed these; each waits until its index is applied.
        self.waiting: list[tuple[LogIndex, asyncio.Future[None]]] = []

    def ask(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """To be given to the core; anyone who gives it up cancels it."""
        done: asyncio.Future[None] = loop.create_future()
        self._asked.add(done)
        done.add_done_callback(self._asked.discard)
        return done

    def note(self, ready: Ready, refused: Refused) -> None:
        """What the core says about the reads it was asked for, which are futures."""
        for read in ready.reads:
            assert isinstance(read.context, asyncio.Future)
            self.waiting.append((read.index, read.context))
        for context in ready.reads_refused:
            assert isinstance(context, asyncio.Future)
            if not context.done():
                context.set_exception(refused)

    def settle(self, applied_index: LogIndex) -> None:
        waiting = []
        for index, done in self.waiting:
            if index > applied_index:
                waiting.append((index, done))
            elif not done.done():
                done.set_result(None)
        self.waiting = waiting

    def refuse(self, refused: Refused) -> None:
        """All of them, also those of which the core will say nothing any more."""
        for done in self._asked:
            if not done.done():
                done.set_exception(refused)
        self.waiting = []
