"""Has the changes of one queue stored by its share coordinator, one write at a time.

What is decided in one turn of the loop, and what is decided while a write is under way, goes with
the next write. A write that fails, or of which nobody knows what became, voids all that was decided
since.

Where the coordinator is on the same node, a write is a plain call without a task: most nodes store
the queues that they lead themselves, and a queue may write thousands of times a second.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.queues.commands import Change
from penstock.queues.decisions import Write
from penstock.queues.layout import QueueKey
from penstock.queues.ports import QueueStore
from penstock.queues.records import QueueStored
from penstock.queues.retrying import NOT_DONE, as_leader, retried
from penstock.replication.commit import Commit

# A coordinator on the same node that has not stored a write for so long has no majority.
WRITE_S_MAX: Final = 10.0


class Storing:
    def __init__(
        self,
        *,
        key: QueueKey,
        term: int,
        store: QueueStore,
        clock: Clock,
        run: Callable[[Coroutine[Any, Any, None]], None],
        on_failed: Callable[[Refused], None],
    ) -> None:
        self._key = key
        self._term = term
        self._store = store
        self._clock = clock
        self._run = run
        # It has to call `void`, after all that belongs to what was decided is gone.
        self._on_failed = on_failed
        self.opening = 0
        self._state_epoch = 0
        self._version = 0
        # What is to be stored next, who waits for it, and who waits for what is under way.
        self.pending: list[Change] = []
        self.next_commit = Commit()
        self.under_way: Commit | None = None
        # Who waits until what has changed nothing is confirmed.
        self._confirming: dict[Commit, None] = {}
        # When the next write begins, or when the one that is under way is late.
        self._timer: asyncio.Handle | None = None

    @property
    def is_busy(self) -> bool:
        return bool(self.pending) or self.under_way is not None

    def opened(self, stored: QueueStored, opening: int) -> None:
        self.opening = opening
        self._state_epoch, self._version = stored.state_epoch, stored.version

    def submit(self, change: Change) -> Commit:
        """Settled once the change and all before it are stored."""
        self.pending.append(change)
        commit = self.next_commit
        if self.under_way is None:
            self.under_way = Commit()
            self._timer = asyncio.get_running_loop().call_soon(self._begin)
        return commit

    def last_commit(self) -> Commit:
        """Settled once all that was submitted so far is stored."""
        if self.pending:
            return self.next_commit
        if self.under_way is not None:
            return self.under_way
        done = Commit()
        done.settle(None)
        return done

    def confirmed(self, confirm: Callable[[], Awaitable[None]]) -> Commit:
        """The same for what another leader would have to have stored: once it is confirmed, too,
        that there was none until now."""
        confirmed = Commit()
        self._confirming[confirmed] = None
        self._run(self._confirm(self.last_commit(), confirm, confirmed))
        return confirmed

    async def _confirm(
        self, commit: Commit, confirm: Callable[[], Awaitable[None]], confirmed: Commit
    ) -> None:
        error: Refused | None = None
        try:
            await commit
            await confirm()
        except Refused as refused:
            error = refused
        if confirmed in self._confirming:
            del self._confirming[confirmed]
            confirmed.settle(error)

    async def write(self, change: Change, *, is_whole: bool = False) -> None:
        """At once, for a queue that nobody uses yet."""
        await self._ask(self._command((change,), is_whole=is_whole))
        self._version += 1

    def void(self, refused: Refused) -> None:
        """What was submitted may never be stored: all who wait for it hear so."""
        failed = [commit for commit in (self.under_way, self.next_commit) if commit is not None]
        failed += self._confirming
        self.pending, self.under_way, self.next_commit = [], None, Commit()
        self._confirming.clear()
        self._stop_timer()
        for commit in failed:
            if not commit.is_settled:
                commit.settle(as_leader(refused))

    def _begin(self) -> None:
        """Writes what is pending."""
        self._stop_timer()
        if not self.pending:
            self.under_way = None
            return
        changes, self.pending = tuple(self.pending), []
        commit, self.next_commit = self.next_commit, Commit()
        self.under_way = commit
        command = self._command(changes)
        stored = self._store.write_here(command)
        if stored is None:
            self._run(self._write(command, commit))
            return
        if not stored.is_settled:
            late = asyncio.get_running_loop().call_later(WRITE_S_MAX, self._late)
            self._timer = late
        stored.then(partial(self._heard, commit))

    def _command(self, changes: tuple[Change, ...], *, is_whole: bool = False) -> Write:
        return Write(
            key=self._key,
            term=self._term,
            opening=self.opening,
            state_epoch=self._state_epoch,
            version=self._version + 1,
            changes=changes,
            is_whole=is_whole,
        )

    async def _write(self, command: Write, commit: Commit) -> None:
        """By the coordinator wherever it is, which may be on its way to another node."""
        try:
            await self._ask(command)
        except Refused as refused:
            if self.under_way is commit:
                self._on_failed(refused)
        else:
            self._wrote(commit)

    async def _ask(self, command: Write) -> None:
        await retried(partial(self._store.write, command), NOT_DONE, self._clock)

    def _heard(self, commit: Commit, error: Refused | None) -> None:
        """Of a write on this node."""
        if self.under_way is not commit:
            # It was given up before.
            return
        if error is not None:
            # It was appended, so another leader may still commit it.
            self._on_failed(Refused(Reason.REQUEST_TIMED_OUT, error.detail))
            return
        self._wrote(commit)

    def _late(self) -> None:
        detail = f"a change of {self._key} was not stored in time"
        self._on_failed(Refused(Reason.REQUEST_TIMED_OUT, detail))

    def _wrote(self, commit: Commit) -> None:
        if self.under_way is not commit:
            return
        self._stop_timer()
        self._version += 1
        # Whoever hears of it may submit more, which waits for the next write.
        self.under_way = Commit()
        commit.settle(None)
        if self.pending:
            self._begin()
        else:
            self.under_way = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
