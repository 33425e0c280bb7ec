"""One queue on the leader of its data partition, which decides what happens to its records.

It opens the stored queue with its term, decides on its own copy, and has every change stored by the
share coordinator. One change is under way at a time, and what is decided meanwhile goes with the
next one. Answers leave when what they saw is stored. If a change is refused, or if nobody knows
what became of it, everything since is void: the copy is dropped, and opened again when somebody
asks.

A record leaves for a consumer after its lease is stored. Leases end by the monotonic clock. Those
that another leader gave run for their whole duration from when the queue was opened here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import MemberId
from penstock.queues.commands import (
    AckBatch,
    AcquiredRange,
    Change,
    Range,
    RecordState,
    ShareSettings,
)
from penstock.queues.decisions import Open, Write
from penstock.queues.layout import QueueKey
from penstock.queues.leases import LeaseDeadlines
from penstock.queues.machine import ShareMachine
from penstock.queues.records import UNRESOLVED, QueueStored
from penstock.replication.alarm_clock import AlarmClock
from penstock.replication.commit import Commit, report_bug
from penstock.replication.watches import Watch

logger = logging.getLogger(__name__)

# How long the share coordinator is asked again while it changes.
RETRIED_S_MAX = 5.0
RETRY_PAUSE_S = 0.05
# How long a majority is waited for before nobody knows whether this node leads.
CONFIRM_S_MAX = 5.0

# The coordinator was not there, or it did not begin: what was asked has changed nothing.
_NOT_DONE = frozenset(
    {
        Reason.NOT_COORDINATOR,
        Reason.COORDINATOR_NOT_AVAILABLE,
        Reason.COORDINATOR_LOAD_IN_PROGRESS,
        Reason.LEADER_NOT_AVAILABLE,
        Reason.THROTTLED,
    }
)
# What may be over in a moment. An opening may be asked for again whatever became of it.
_PASSING = _NOT_DONE | {Reason.REQUEST_TIMED_OUT, Reason.FENCED_STATE_EPOCH}


class QueueStore(Protocol):
    """The share coordinators, wherever they are."""

    async def open(self, command: Open, /) -> QueueStored: ...

    async def write(self, command: Write, /) -> None: ...


class DataLog(Protocol):
    """What is asked of the replica of the data partition."""

    @property
    def term(self) -> int: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def is_settled(self) -> bool: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...

    def check_leader(self) -> None: ...
    async def confirm(self) -> None: ...
    def on_advance(self, callback: Callable[[], None], /) -> Watch: ...
    def on_leadership(self, callback: Callable[[], None], /) -> Watch: ...


class Waiter(Protocol):
    """A poll that found too little; it is asked to look again, and then says whether it stays."""

    def wake(self) -> None: ...


class LedQueue:
    def __init__(
        self,
        *,
        key: QueueKey,
        log: DataLog,
        store: QueueStore,
        alarms: "AlarmClock[LedQueue]",
        clock: Clock,
        settings_of: Callable[[], ShareSettings],
        resolve_start: Callable[[], Awaitable[int]],
        next_opening: Callable[[], int],
        on_closed: "Callable[[LedQueue], None]",
        on_dying: "Callable[[LedQueue], None]" = lambda _: None,
    ) -> None:
        self.key = key
        self.log = log
        self.term = log.term
        self._store = store
        self._alarms = alarms
        self._clock = clock
        self._settings_of = settings_of
        self._resolve_start = resolve_start
        self._next_opening = next_opening
        self._on_closed = on_closed
        self._on_dying = on_dying
        self._machine: ShareMachine | None = None
        self._opening = 0
        self._state_epoch = 0
        self._version = 0
        self._deadlines = LeaseDeadlines()
        # What is to be stored next, who waits for it, and who waits for what is under way.
        self._pending: list[Change] = []
        self._next_commit = Commit()
        self._under_way: Commit | None = None
        self._opened: Commit | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Polls that found too little, with the number of the news that they know.
        self._waiters: dict[Waiter, int] = {}
        self._news = 0
        self._closed: Refused | None = None
        self.used_at = clock.monotonic()
        self._watches = [
            log.on_leadership(self._follow),
            log.on_advance(self._advanced),
        ]

    # Life

    @property
    def is_open(self) -> bool:
        return self._machine is not None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is lost if it is closed: nobody waits, and nothing is leased."""
        is_quiet = not (self._waiters or self._pending or self._under_way or self._tasks)
        machine = self._machine
        return is_quiet and (machine is None or not (machine.leased_count or machine.has_letters))

    def open(self) -> Commit:
        """Settled once the queue may be used, or with the reason why it can't be."""
        self.used_at = self._clock.monotonic()
        if self._opened is None or (self._opened.error is not None and self._closed is None):
            self._opened = Commit()
            if self._closed is not None:
                self._opened.settle(self._closed)
            else:
                self._run(self._open(self._opened))
        return self._opened

    def close(self, refused: Refused) -> None:
        """For good: everyone who waits hears why."""
        if self._closed is not None:
            return
        self._closed = refused
        for watch in self._watches:
            watch.cancel()
        for task in list(self._tasks):
            task.cancel()
        opened = self._opened
        self._void(refused)
        if opened is not None and not opened.is_settled:
            opened.settle(refused)
        self._on_closed(self)

    def _follow(self) -> None:
        """A queue belongs to one term: the leader of the next one opens it again."""
        if not self.log.is_leader or self.log.term != self.term:
            self.close(Refused(Reason.NOT_LEADER_OR_FOLLOWER, f"{self.key} is led elsewhere"))

    # Opening

    async def _open(self, opened: Commit) -> None:
        try:
            await self._retried(self._open_once, _PASSING)
        except Refused as refused:
            logger.info("%s can't be opened: %s", self.key, refused.detail)
            self._machine = None
            opened.settle(_as_leader(refused))
            self._wake_all()
        else:
            opened.settle(None)
            self._tell_news()

    async def _retried(
        self, work: Callable[[], Awaitable[None]], passing: Collection[Reason]
    ) -> None:
        until = self._clock.monotonic() + RETRIED_S_MAX
        while True:
            try:
                await work()
            except Refused as refused:
                if refused.reason not in passing or self._clock.monotonic() >= until:
                    raise
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                return

    async def _open_once(self) -> None:
        self.log.check_leader()
        if not self.log.is_settled:
            raise Refused(Reason.LEADER_NOT_AVAILABLE, "the leader does not know its end yet")
        self._opening = self._next_opening()
        command = Open(key=self.key, term=self.term, opening=self._opening)
        stored = await self._store.open(command)
        self._state_epoch, self._version = stored.state_epoch, stored.version
        machine = await self._take_over(stored)
        self.log.check_leader()
        self._machine = machine
        self._deadlines.clear()
        self._lease_again(list(machine.leases()))
        self._follow_log_start()
        self._tell_dying()

    async def _take_over(self, stored: QueueStored) -> ShareMachine:
        """The queue as it is stored, or as it follows from the log: that is stored first."""
        whole = stored.whole
        if whole.start == UNRESOLVED:
            # Stored before the first lease, since "latest" would be another one later on.
            whole = Change(start=await self._resolve_start())
            await self._write((whole,))
        elif (end := self.log.log_end_offset) < _end(whole):
            text = "%s knows offsets up to %d, but its log ends at %d: what is beyond is forgotten"
            logger.error(text, self.key, _end(whole), end)
            whole = _cut(whole, end)
            await self._write((whole,), is_whole=True)
        return ShareMachine(start=whole.start, ranges=whole.ranges, letters=whole.letters)

    def _lease_again(self, leases: Sequence[Range]) -> None:
        now = self._clock.monotonic()
        by_duration: dict[int, list[Range]] = {}
        for lease in leases:
            by_duration.setdefault(lease.lease_ms, []).append(lease)
        for lease_ms, together in by_duration.items():
            self._deadlines.add(together, now + lease_ms / 1000)
        self._set_alarm()

    # Deciding

    @property
    def has_news(self) -> bool:
        """Whether a poll would find a record, as far as is known."""
        machine = self._machine
        return (
            machine is not None
            and machine.first_available() < self.log.high_watermark
            and machine.has_room(self._settings_of())
        )

    def next_offset(self) -> int:
        """Where a poll reads on; the queue must be open."""
        self._follow_log_start()
        return self._open_machine().first_available()

    def acquire(
        self,
        member_id: MemberId,
        spans: Sequence[tuple[int, int]],
        *,
        records_max: int,
        batch_size: int,
        is_exact: bool,
        read_from: int,
    ) -> tuple[tuple[AcquiredRange, ...], Commit]:
        """Leases records of what was read; they may leave when the commit is settled."""
        settings, machine = self._settings_of(), self._open_machine()
        end_before = machine.end
        change, acquired = machine.decide_acquire(
            member_id,
            spans,
            records_max=records_max,
            batch_size=batch_size,
            is_exact=is_exact,
            settings=settings,
            read_from=read_from,
        )
        commit = self._submit(change)
        leases = [item for item in change.ranges if item.state is RecordState.LEASED]
        if leases:
            commit.then(partial(self._leased, leases, settings.lease_ms, end_before))
        return acquired, commit

    def acknowledge(self, member_id: MemberId, batches: Sequence[AckBatch]) -> Commit:
        """All of it or, with Refused, nothing."""
        settings = self._settings_of()
        change, renewed = self._open_machine().decide_acknowledge(member_id, batches, settings)
        commit = self._submit(change)
        if renewed:
            at = self._clock.monotonic() + settings.lease_ms / 1000
            self._deadlines.renew(renewed, at)
            self._set_alarm()
        self._ended_leases()
        return commit

    async def confirm(self) -> None:
        """Returns once it is sure that the copy was the newest one until now; raises Refused if it
        may not have been. A leader that was replaced without knowing it would refuse what another
        one has leased."""
        try:
            async with asyncio.timeout(CONFIRM_S_MAX):
                await self.log.confirm()
        except TimeoutError:
            detail = f"no majority confirms who leads {self.key}"
            raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, detail) from None
        if self._closed is not None:
            raise self._closed

    def holders(self) -> frozenset[MemberId | None]:
        """Who has leases."""
        return frozenset(each.member_id for each in self._open_machine().leases())

    def release(self, member_id: MemberId) -> Commit:
        """Gives back everything that the member has."""
        change = self._open_machine().decide_release(member_id, self._settings_of())
        commit = self._submit(change)
        self._ended_leases()
        return commit

    def expire(self) -> None:
        """The time of some leases is over."""
        if self._machine is None:
            return
        due = self._deadlines.pop_due(self._clock.monotonic())
        if due:
            change = self._machine.decide_expiry(due, self._settings_of())
            self._submit(change)
            self._ended_leases()
        self._set_alarm()

    def _follow_log_start(self) -> None:
        machine, start = self._open_machine(), self.log.log_start_offset
        if start <= machine.start:
            return
        lost = machine.lost_below(start)
        if lost:
            text = "%d records of %s are gone from the log before they were processed"
            logger.warning(text, lost, self.key)
        self._submit(machine.decide_log_start(start))

    def _leased(
        self, leases: Sequence[Range], lease_ms: int, new_from: int, refused: Refused | None
    ) -> None:
        """They are stored: the member's time begins. What was leased before, and was given back
        before its time, has an old deadline that must not end the new lease."""
        if refused is None and self._machine is not None:
            at = self._clock.monotonic() + lease_ms / 1000
            self._deadlines.renew([lease for lease in leases if lease.first < new_from], at)
            self._deadlines.add([lease for lease in leases if lease.first >= new_from], at)
            self._set_alarm()

    def _ended_leases(self) -> None:
        """Records may be free again, or there is room for other leases."""
        machine = self._open_machine()
        if not machine.leased_count:
            self._deadlines.clear()
            self._alarms.cancel(self)
        else:
            self._deadlines.drop_stale(machine.leases(), machine.leased_count)
        self._tell_news()

    @property
    def machine(self) -> ShareMachine:
        """To look at. Raises Refused if the queue is not open."""
        return self._open_machine()

    def decide(self, decision: Callable[[ShareMachine], Change]) -> Commit:
        """For what is not of polls: the change is stored like any other."""
        commit = self._submit(decision(self._open_machine()))
        self._tell_news()
        return commit

    def stored(self) -> Commit:
        """Settled once all that was decided so far is stored."""
        return self._last_commit()

    def _tell_dying(self) -> None:
        if self._machine is not None and self._machine.has_letters:
            self._on_dying(self)

    def _set_alarm(self) -> None:
        at = self._deadlines.next_at()
        if at is None:
            self._alarms.cancel(self)
        else:
            self._alarms.set_at(self, at)

    def _open_machine(self) -> ShareMachine:
        if self._machine is None:
            detail = f"{self.key} is not open"
            raise self._closed or Refused(Reason.COORDINATOR_NOT_AVAILABLE, detail)
        return self._machine

    # Storing

    def _submit(self, change: Change) -> Commit:
        """Applies the change now; the commit is settled once it and all before it are stored."""
        machine = self._open_machine()
        if not machine.is_news(change):
            return self._last_commit()
        machine.apply(change)
        self._pending.append(change)
        self._tell_dying()
        commit = self._next_commit
        if self._under_way is None:
            self._under_way = Commit()
            self._run(self._write_all())
        return commit

    def _last_commit(self) -> Commit:
        if self._pending:
            return self._next_commit
        if self._under_way is not None:
            return self._under_way
        done = Commit()
        done.settle(None)
        return done

    async def _write_all(self) -> None:
        """Until nothing is pending; what is decided during a write goes with the next one."""
        while self._pending:
            changes, self._pending = tuple(self._pending), []
            self._under_way, self._next_commit = self._next_commit, Commit()
            try:
                await self._write(changes)
            except Refused as refused:
                self._void(refused)
                return
            commit, self._under_way = self._under_way, Commit()
            commit.settle(None)
        self._under_way = None

    async def _write(self, changes: tuple[Change, ...], *, is_whole: bool = False) -> None:
        command = Write(
            key=self.key,
            term=self.term,
            opening=self._opening,
            state_epoch=self._state_epoch,
            version=self._version + 1,
            changes=changes,
            is_whole=is_whole,
        )
        await self._retried(partial(self._store.write, command), _NOT_DONE)
        self._version += 1

    def _void(self, refused: Refused) -> None:
        """What was decided may never be stored: the copy goes, with all who waited for it."""
        logger.info("%s is dropped: %s", self.key, refused.detail)
        self._machine = None
        self._opened = None
        self._deadlines.clear()
        self._alarms.cancel(self)
        failed = [commit for commit in (self._under_way, self._next_commit) if commit is not None]
        self._pending, self._under_way, self._next_commit = [], None, Commit()
        for commit in failed:
            if not commit.is_settled:
                commit.settle(_as_leader(refused))
        self._wake_all()

    # Polls that wait

    def wait(self, waiter: Waiter) -> None:
        """The waiter looks now, and hears of what is new from now on. What it did not want when it
        looked before is for the next one."""
        self._waiters.pop(waiter, None)
        self._waiters[waiter] = self._news
        self._wake_next()

    def leave(self, waiter: Waiter) -> None:
        """It looked, or it gave up: what it left is for the next one."""
        self._waiters.pop(waiter, None)
        self._wake_next()

    def _advanced(self) -> None:
        self._tell_news()

    def _tell_news(self) -> None:
        self._news += 1
        self._wake_next()

    def _wake_next(self) -> None:
        """One at a time, the one that waits longest: what it leaves wakes the next one."""
        if not self._waiters or not self.has_news:
            return
        waiter, known = next(iter(self._waiters.items()))
        if known < self._news:
            del self._waiters[waiter]
            waiter.wake()

    def _wake_all(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.wake()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            assert isinstance(bug, Exception)
            report_bug(f"work on {self.key} failed", bug)
            self.close(Refused(Reason.UNKNOWN_SERVER_ERROR, f"{self.key} failed"))


def _end(whole: Change) -> int:
    return whole.ranges[-1].last + 1 if whole.ranges else whole.start


def _cut(whole: Change, end: int) -> Change:
    kept = (item._replace(last=min(item.last, end - 1)) for item in whole.ranges)
    ranges = tuple(item for item in kept if item.first <= item.last)
    letters = whole.letters
    if letters is not None and letters.plan is not None:
        # Other records may come to have these offsets.
        letters = letters.dropped(keeps_sender=False)
    return Change(start=min(whole.start, end), ranges=ranges, letters=letters)


def _as_leader(refused: Refused) -> Refused:
    """In the words of the data partition's leader: which its clients know what to do about."""
    if refused.reason is Reason.FENCED_LEADER_EPOCH:
        return Refused(Reason.NOT_LEADER_OR_FOLLOWER, refused.detail)
    if refused.reason in _PASSING:
        return Refused(Reason.COORDINATOR_NOT_AVAILABLE, refused.detail)
    return refused
