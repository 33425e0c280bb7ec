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
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import MemberId
from penstock.queues.backoff import RandomBelow, Waits
from penstock.queues.commands import (
    AckBatch,
    AcquiredRange,
    Change,
    Range,
    RecordState,
    ShareSettings,
)
from penstock.queues.decisions import Open
from penstock.queues.key_order import KeyAt, KeyOrder, waiting_places
from penstock.queues.layout import QueueKey
from penstock.queues.leases import LeaseDeadlines
from penstock.queues.looking import Looked, WrongTimes
from penstock.queues.machine import ShareMachine
from penstock.queues.ports import DataLog, QueueStore
from penstock.queues.records import UNRESOLVED, QueueStored
from penstock.queues.retrying import PASSING, as_leader, retried
from penstock.queues.storing import Storing
from penstock.queues.tally import QueueTally
from penstock.queues.transitions import Event
from penstock.queues.waiters import Waiter, Waiters
from penstock.replication.alarm_clock import AlarmClock
from penstock.replication.commit import Commit, report_bug

logger = logging.getLogger(__name__)

# The first and last offset of a batch, or of others that belong together.
Span: TypeAlias = tuple[int, int]

# How long a majority is waited for before nobody knows whether this node leads.
CONFIRM_S_MAX = 5.0
# The wall clock may be set: what waits for a time of it is looked at this often at least.
DUE_CHECK_S_MAX = 5.0
# So many ranges become due at a time, so that nobody waits long while a million do.
DUE_RANGES_MAX = 1_000


class LedQueue:
    # Whether somebody wants to know how attempts ended.
    is_traced = False

    def __init__(
        self,
        *,
        key: QueueKey,
        log: DataLog,
        store: QueueStore,
        alarms: "AlarmClock[LedQueue]",
        due_alarms: "AlarmClock[LedQueue]",
        clock: Clock,
        random_below: RandomBelow,
        tally: QueueTally,
        settings_of: Callable[[], ShareSettings],
        resolve_start: Callable[[], Awaitable[int]],
        read_keys: Callable[[Sequence[Span], Container[int]], Awaitable[list[KeyAt]]],
        next_opening: Callable[[], int],
        on_closed: "Callable[[LedQueue], None]",
        on_dying: "Callable[[LedQueue], None]" = lambda _: None,
    ) -> None:
        self.key = key
        self.log = log
        self.term = log.term
        self._store = store
        self._alarms = alarms
        self._due_alarms = due_alarms
        self.clock = clock
        self.random_below = random_below
        self._tally = tally
        self._settings_of = settings_of
        self._resolve_start = resolve_start
        self._read_keys = read_keys
        self._next_opening = next_opening
        self._on_closed = on_closed
        self._on_dying = on_dying
        self._machine: ShareMachine | None = None
        # Only with order per key.
        self._keys: KeyOrder | None = None
        self._storing = Storing(
            key=key,
            term=self.term,
            store=store,
            clock=clock,
            run=self._run,
            on_failed=self._void,
        )
        self._deadlines = LeaseDeadlines()
        self._opened: Commit | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters = Waiters(lambda: self.has_news)
        self._closed: Refused | None = None
        self._is_looking = False
        # Where the next poll begins, if it does not matter which record comes first.
        self._reads_from = 0
        self.wrong_times = WrongTimes()
        # Records that were too old to be delivered, since this node leads the queue.
        self.expired_count = 0
        self.used_at = clock.monotonic()
        self._watches = [log.on_leadership(self._follow), log.on_advance(self.tell_news)]

    # Life

    @property
    def is_open(self) -> bool:
        return self._machine is not None

    @property
    def opening(self) -> int:
        """Which opening of the queue this is. The next one may know less: what was found out for
        this one must not be decided there. Raises Refused if the queue is not open."""
        self._open_machine()
        return self._storing.opening

    def _check_opening(self, opening: int) -> None:
        if self.opening != opening:
            raise Refused(Reason.COORDINATOR_NOT_AVAILABLE, f"{self.key} was opened again")

    @property
    def is_idle(self) -> bool:
        """Whether nothing is lost if it is closed: nobody waits, and nothing is leased."""
        is_quiet = not (self._waiters or self._storing.is_busy or self._tasks)
        machine = self._machine
        return is_quiet and (machine is None or not (machine.leased_count or machine.has_letters))

    def open(self) -> Commit:
        """Settled once the queue may be used, or with the reason why it can't be."""
        self.used_at = self.clock.monotonic()
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
        # One line for each of thousands of queues would hide what else a node says as it stops.
        self._void(refused, level=logging.DEBUG)
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
            await retried(self._open_once, PASSING, self.clock)
        except Refused as refused:
            logger.info("%s can't be opened: %s", self.key, refused.detail)
            self._machine = None
            opened.settle(as_leader(refused))
            self._waiters.wake_all()
        else:
            opened.settle(None)
            self.tell_news()

    async def _open_once(self) -> None:
        self.log.check_leader()
        if not self.log.is_settled:
            raise Refused(Reason.LEADER_NOT_AVAILABLE, "the leader does not know its end yet")
        opening = self._next_opening()
        command = Open(key=self.key, term=self.term, opening=opening)
        stored = await self._store.open(command)
        self._storing.opened(stored, opening)
        whole = await self._take_over(stored)
        has_order = self._settings_of().has_key_order
        copiers = whole.letters.copiers if whole.letters is not None else ()
        keys = await self._read_keys(waiting_places(whole), copiers) if has_order else ()
        self.log.check_leader()
        # Again from nothing: an opening that failed may have counted something.
        self._tally.clear()
        machine = ShareMachine(
            start=whole.start, ranges=whole.ranges, letters=whole.letters, tally=self._tally.add
        )
        self._machine = machine
        self._order(keys if has_order else None)
        self._deadlines.clear()
        self._lease_again(list(machine.leases()))
        self._follow_log_start()
        self.make_due()
        self._tell_dying()

    def _order(self, keys: Iterable[KeyAt] | None) -> None:
        """Finds out which records are the first of their keys, if that matters."""
        machine, self._keys = self._open_machine(), None
        if keys is not None:
            self._keys = KeyOrder(machine.start)
            self._keys.add(keys)
            self._follow_order(Change(start=machine.start, ranges=tuple(machine.ranges())))

    async def _take_over(self, stored: QueueStored) -> Change:
        """The queue as it is stored, or as it follows from the log: that is stored first."""
        whole = stored.whole
        if whole.start == UNRESOLVED:
            # Stored before the first lease, since "latest" would be another one later on.
            whole = Change(start=await self._resolve_start())
            await self._storing.write(whole)
        elif (end := self.log.log_end_offset) < whole.end:
            text = "%s knows offsets up to %d, but its log ends at %d: what is beyond is forgotten"
            logger.error(text, self.key, whole.end, end)
            whole = whole.cut_at(end)
            await self._storing.write(whole, is_whole=True)
        return whole

    def _lease_again(self, leases: Sequence[Range]) -> None:
        now = self.clock.monotonic()
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
        machine, settings = self._machine, self._settings_of()
        return (
            machine is not None
            and not settings.is_paused
            and machine.first_available() < self.log.high_watermark
            and machine.has_room(settings)
        )

    def next_offset(self) -> int:
        """Where a poll reads on; the queue must be open."""
        self._follow_log_start()
        return self._open_machine().first_available(self._reads_from)

    def acquire(
        self,
        member_id: MemberId,
        spans: Sequence[tuple[int, int]],
        *,
        records_max: int,
        batch_size: int,
        is_exact: bool,
        read_from: int,
        opening: int,
        lease_ms: int | None = None,
    ) -> tuple[tuple[AcquiredRange, ...], Commit]:
        """Leases records of what was read since this opening; they may leave when the commit is
        settled. Without `lease_ms` they are leased for as long as the group's settings say."""
        self._check_opening(opening)
        settings, machine = self._settings_of(), self._open_machine()
        if lease_ms is not None:
            settings = replace(settings, lease_ms=lease_ms)
        records_max = min(records_max, self.room_of(member_id))
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
        self._turn(acquired)
        commit = self._submit(change)
        leases = [item for item in change.ranges if item.state is RecordState.LEASED]
        if leases:
            # What was leased before, and was given back before its time or brought back from the
            # dead, has an old deadline that must not end the new lease.
            again = [lease for lease in leases if lease.first < end_before]
            new = [lease for lease in leases if lease.first >= end_before]
            self._deadlines.hold(again)
            commit.then(partial(self._leased, again, new, settings.lease_ms))
        return acquired, commit

    def _turn(self, acquired: Sequence[AcquiredRange]) -> None:
        """Records for later become due anywhere. Polls go through them in turn: if all began with
        the first, those at the end would wait as long as there are others."""
        has_turns = acquired and self._settings_of().has_delays
        self._reads_from = acquired[-1].last + 1 if has_turns else 0

    def acknowledge(self, member_id: MemberId, batches: Sequence[AckBatch]) -> Commit:
        """All of it or, with Refused, nothing."""
        settings = self._settings_of()
        waits = Waits(settings.backoff, self.clock.now_ms(), self.random_below)
        change, renewed = self._open_machine().decide_acknowledge(
            member_id, batches, settings, waits.due_after
        )
        return self.settle(change, renewed, settings.lease_ms)

    def settle(self, change: Change, renewed: Sequence[Range], lease_ms: int) -> Commit:
        """What was said of leases: some end, and others begin again, now."""
        is_stored = self._open_machine().is_news(change)
        commit = self._submit(change)
        self._set_due_alarm()
        if renewed:
            self._extend(renewed, lease_ms)
            if not is_stored:
                # No coordinator would refuse it.
                commit = self._storing.confirmed(self.confirm)
        self._ended_leases()
        return commit

    def _extend(self, leases: Sequence[Range], lease_ms: int) -> None:
        self._deadlines.renew(leases, self.clock.monotonic() + lease_ms / 1000)
        self._set_alarm()

    async def confirm(self) -> None:
        """Returns once it is sure that the copy was the newest one until now; raises Refused if it
        may not have been. A leader that was replaced without knowing it would refuse what another
        one has leased, and renew what another one may have given away."""
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

    def undo(self, member_id: MemberId, acquired: Sequence[AcquiredRange] | None = None) -> None:
        """What it was given never reached the member: this, or all it has."""
        settings = self._settings_of()
        self.decide(lambda machine: machine.decide_undone(member_id, settings, acquired))

    def expire(self) -> None:
        """The time of some leases is over."""
        if self._machine is None:
            return
        due = self._deadlines.pop_due(self.clock.monotonic())
        if due:
            change = self._machine.decide_expiry(due, self._settings_of())
            attempts = (AcquiredRange(each.first, each.last, each.attempts) for each in due)
            self.note(Event.EXPIRE, attempts, self._submit(change))
            self._ended_leases()
        self._set_alarm()

    def note(self, event: Event, attempts: Iterable[AcquiredRange], commit: Commit) -> None:
        """How attempts ended, once it is stored: for those who trace them."""

    # Records that are looked into

    def follow_settings(self) -> None:
        """If it is another one now whether keys have an order, the queue is opened again: who
        waits for whom is found out then."""
        if self._machine is None or (self._keys is not None) == self._settings_of().has_key_order:
            return
        for task in list(self._tasks):
            task.cancel()
        self._void(Refused(Reason.COORDINATOR_NOT_AVAILABLE, "its order was changed"))

    def unlooked_from(self) -> int | None:
        """From which offset on records have to be looked into before they are delivered; None if
        that is not so. The queue must be open."""
        end = self._open_machine().end
        settings = self._settings_of()
        must_look = self._keys is not None or settings.has_delays or settings.has_expiry
        return end if must_look else None

    def may_look(self, wanted: int) -> bool:
        """Whether somebody who wants so many records should look for new ones: if there are not
        enough, and there is space for more, and nobody else does."""
        machine = self._open_machine()
        is_needed = machine.available_count < wanted and not self._is_looking
        return is_needed and machine.has_space(self._settings_of())

    @contextmanager
    def looking(self) -> Iterator[None]:
        """One poll at a time looks; others take what is known, or wait for what it finds."""
        end, has_news = self._open_machine().end, True
        self._is_looking = True
        try:
            yield
            # If it failed, another one may look. If it found nothing new, nobody would.
            has_news = self._open_machine().end > end
        finally:
            self._is_looking = False
            if has_news:
                self.tell_news()

    def look(self, spans: Sequence[Span], looked: Looked, *, opening: int) -> Commit:
        """Batches were looked into since this opening; settled once it is stored which of them are
        delayed."""
        self._check_opening(opening)
        machine = self._open_machine()
        end = machine.end
        change = machine.decide_look(spans, looked.later, self._settings_of())
        if self._keys is not None:
            self._keys.add(each for each in looked.keys if each[0] >= end)
        commit = self._submit(change)
        self.wrong_times.count(looked, self.key, self.clock.monotonic())
        self._set_due_alarm()
        return commit

    def drop_expired(self, spans: Sequence[Span], *, opening: int) -> Commit:
        """Since this opening, these records were found to be too old to be delivered."""
        self._check_opening(opening)
        change, count = self._open_machine().decide_outdated(spans, self._settings_of())
        self.expired_count += count
        return self.decide(lambda _: change)

    def make_due(self) -> None:
        """The time of some delayed records may have come. It follows from what is stored."""
        machine = self._machine
        if machine is None:
            return
        now_ms, settings = self.clock.now_ms(), self._settings_of()
        change = machine.decide_due(now_ms, settings, DUE_RANGES_MAX)
        if change.ranges:
            self._apply(change)
            self.tell_news()
        self._set_due_alarm()

    def _set_due_alarm(self) -> None:
        due_ms = self._open_machine().next_due_ms()
        if due_ms is None:
            self._due_alarms.cancel(self)
            return
        wait_s = max(0, due_ms - self.clock.now_ms()) / 1000
        now = self.clock.monotonic()
        self._due_alarms.set_at(self, now + min(wait_s, DUE_CHECK_S_MAX))

    def room_of(self, member_id: MemberId) -> int:
        """How many more records the member may have of all queues of its group."""
        return self._tally.room(member_id, self._settings_of(), self.tell_news)

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
        self,
        again: Sequence[Range],
        new: Sequence[Range],
        lease_ms: int,
        refused: Refused | None,
    ) -> None:
        """They are stored: the member's time begins."""
        if refused is None and self._machine is not None:
            at = self.clock.monotonic() + lease_ms / 1000
            self._deadlines.renew(again, at)
            self._deadlines.add(new, at)
            self._set_alarm()

    def _ended_leases(self) -> None:
        """Records may be free again, or there is room for other leases."""
        machine = self._open_machine()
        if not machine.leased_count:
            self._deadlines.clear()
            self._alarms.cancel(self)
        else:
            self._deadlines.drop_stale(machine.leases(), machine.leased_count)
        self.tell_news()
        self._tally.ended()

    @property
    def settings(self) -> ShareSettings:
        return self._settings_of()

    @property
    def machine(self) -> ShareMachine:
        """To look at. Raises Refused if the queue is not open."""
        return self._open_machine()

    def decide(self, decision: Callable[[ShareMachine], Change]) -> Commit:
        """For what is not of polls: the change is stored like any other."""
        commit = self._submit(decision(self._open_machine()))
        self._set_due_alarm()
        self._ended_leases()
        return commit

    def stored(self) -> Commit:
        """Settled once all that was decided so far is stored."""
        return self._storing.last_commit()

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
            return self._storing.last_commit()
        self._apply(change)
        commit = self._storing.submit(change)
        self._tell_dying()
        return commit

    def _apply(self, change: Change) -> None:
        self._open_machine().apply(change)
        self._follow_order(change)

    def _follow_order(self, change: Change) -> None:
        if self._keys is not None:
            machine = self._open_machine()
            machine.apply(self._keys.follow(change, machine, self._settings_of()))

    def _void(self, refused: Refused, level: int = logging.INFO) -> None:
        """What was decided may never be stored: the copy goes, with all who waited for it."""
        logger.log(level, "%s is dropped: %s", self.key, refused.detail)
        self._machine = self._keys = None
        self._opened = None
        self._deadlines.clear()
        self._alarms.cancel(self)
        self._due_alarms.cancel(self)
        self._tally.clear()
        self._storing.void(refused)
        self._waiters.wake_all()

    # Polls that wait

    def wait(self, waiter: Waiter) -> None:
        self._waiters.add(waiter)

    def leave(self, waiter: Waiter) -> None:
        self._waiters.leave(waiter)

    def tell_news(self) -> None:
        """Somebody who waits should look again."""
        self._waiters.tell_news()

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
