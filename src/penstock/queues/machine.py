"""One share partition, pure: which records are out, with whom, how often they were tried.

Kafka 4.3.1's share partition is the model. What is different, and why:

- The limit of leases counts leased records. Kafka counts all offsets from start to end, so that a
  single slow record stops a queue. What is done behind such a record has a limit of its own.
- A limit that is reached stops redeliveries too, because they are leases. As in Kafka, a fetch
  keeps it to the record only if it asks for an exact number; otherwise its last batch goes out
  whole.
- Offsets that the log does not have are done at once. Kafka leases those between two batches, and
  the consumer reports them.
- A throttled delivery is a part of a group of batches as the fetch reads them. Kafka takes a part
  of what it delivered together the first time, which nobody knows after a change of leader.
- A refused acknowledgement renews nothing. Kafka renews what came before the refused part.
- A closed session gives back all of its records. Kafka stops at the first of another member in what
  was delivered together.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby, islice, pairwise
from operator import attrgetter
from typing import TypeAlias

from penstock.model.errors import Reason, Refused
from penstock.model.ids import MemberId
from penstock.queues.commands import (
    AckBatch,
    AckType,
    AcquiredRange,
    Change,
    Later,
    Range,
    RecordState,
    ShareSettings,
)
from penstock.queues.delivery import Delivery, has_space
from penstock.queues.letters import LetterState
from penstock.queues.ranges import PASSED, RangeMap, Tally, cut, joined
from penstock.queues.reading import Needed
from penstock.queues.transitions import EVENTS, Event, after

_ACK_TYPES = frozenset(AckType)
# From the number of attempts to the time of the next one by the wall clock, or 0 for now.
DueAfter: TypeAlias = Callable[[int], int]
_first = attrgetter("first")
_DYING = RecordState.DYING
_NO_LETTERS = LetterState()


def at_once(_attempts: int) -> int:
    return 0


class ShareMachine:
    """Decides, and changes only by `apply`. Every offset from `start` up to `end` has a state."""

    def __init__(
        self,
        *,
        start: int,
        ranges: Iterable[Range] = (),
        letters: LetterState | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.letters = letters or _NO_LETTERS
        self._ranges = RangeMap(start, ranges, tally=tally)

    @property
    def start(self) -> int:
        """The first offset that is not done with."""
        return self._ranges.start

    @property
    def end(self) -> int:
        """The first offset that was never looked at."""
        return self._ranges.end

    @property
    def available_count(self) -> int:
        """How many of the records that are known can be delivered."""
        return self._ranges.available_count

    @property
    def leased_count(self) -> int:
        return self._ranges.leased_count

    @property
    def in_flight(self) -> int:
        return self.end - self.start

    @property
    def done_count(self) -> int:
        """How many offsets from `start` on are done with (Kafka's delivery-complete count)."""
        return self._ranges.done_count

    @property
    def waiting_count(self) -> int:
        """How many delivered records are done behind one that is not."""
        return self._ranges.waiting_count

    @property
    def delayed_count(self) -> int:
        return self._ranges.delayed_count

    @property
    def blocked_count(self) -> int:
        return self._ranges.blocked_count

    @property
    def dying_count(self) -> int:
        return self._ranges.dying_count

    @property
    def has_letters(self) -> bool:
        """Whether something has to be sent to a dead-letter topic, or come back from it."""
        return self.dying_count > 0 or self.letters.is_busy

    def first_available(self, since: int = 0) -> int:
        """Where to read next: the first record that came back, or `end`. One behind `since` comes
        before all others."""
        first = self._ranges.first_available(since)
        if first is None and since:
            first = self._ranges.first_available()
        return self.end if first is None else first

    def needed(self, since: int, count: int, batch_size: int) -> Needed:
        """What has to be read from `since` on to deliver so many records. What came back goes out
        in whole groups of about `batch_size` records, even beyond that number."""
        if self.available_count:
            for each in self.available_between(since, self.end - 1):
                count -= each.last - each.first + 1
                if count <= 0:
                    return Needed(min(each.last + count + batch_size, self.end - 1), 1)
        return Needed(max(since, self.end), count)

    def has_room(self, settings: ShareSettings) -> bool:
        """Whether a fetch could get anything. If not, nothing needs to be read."""
        if self.leased_count >= settings.leased_max:
            return False
        is_new = self._ranges.first_available() is None
        return not is_new or self.has_space(settings)

    def has_space(self, settings: ShareSettings) -> bool:
        """Whether new records may be looked at: those that wait take memory."""
        return has_space(self._ranges, settings)

    def next_due_ms(self) -> int | None:
        """When the next delayed record can be delivered, by the wall clock."""
        return self._ranges.next_due_ms()

    def leases(self) -> Iterator[Range]:
        for member_id in self._ranges.members():
            yield from self._ranges.leases_of(member_id)

    def at(self, offset: int) -> Range | None:
        """What is known of an offset from the start on."""
        return self._ranges.at(offset)

    def available_between(self, first: int, last: int) -> Iterator[Range]:
        """What can be delivered of these offsets, as far as they are known."""
        return self._ranges.available_between(first, last)

    def ranges(self) -> Iterator[Range]:
        """With `start` and `letters` the whole state: another machine can begin with it."""
        return iter(self._ranges)

    def whole(self) -> Change:
        """All that there is, as one change."""
        letters = None if self.letters == _NO_LETTERS else self.letters
        return Change(start=self.start, ranges=tuple(self.ranges()), letters=letters)

    def moved(self, start: int) -> Change:
        """All that is left if an operator moves the start: what is beyond it is delivered (again).
        Letters of what lies below it are still to be sent."""
        dying = (cut(each, each.first, start - 1) for each in self.dying() if each.first < start)
        return replace(self.whole(), start=start, ranges=tuple(dying))

    def is_news(self, change: Change) -> bool:
        is_moved = bool(change.ranges) or change.start != self.start
        return is_moved or change.letters is not None

    def apply(self, change: Change) -> None:
        """The only mutator. What `change` says of offsets replaces what was known of them."""
        self._ranges.move_start(change.start)
        for each in change.ranges:
            self._ranges.put(each)
        if change.letters is not None:
            self.letters = change.letters

    def decide_acquire(
        self,
        member_id: MemberId,
        spans: Sequence[tuple[int, int]],
        *,
        records_max: int,
        batch_size: int,
        is_exact: bool,
        settings: ShareSettings,
        read_from: int | None = None,
    ) -> tuple[Change, tuple[AcquiredRange, ...]]:
        """Leases records of the batches that were read from the log.

        `spans` are the first and last offsets of these batches in order, without control batches.
        What lies between two of them, or between `read_from` and the first, is not in the log.
        """
        delivery = Delivery(
            self._ranges,
            member_id,
            records_max=records_max,
            batch_size=batch_size,
            is_exact=is_exact,
            settings=settings,
        )
        delivery.choose(spans)
        gone = self._vanished(spans, read_from, settings)
        return self.change_of([*gone, *delivery.changed]), tuple(delivery.acquired)

    def _vanished(
        self, spans: Sequence[tuple[int, int]], read_from: int | None, settings: ShareSettings
    ) -> Iterator[Range]:
        """What came back and is not in the log any more: compaction removed it."""
        first = [] if read_from is None else [(read_from - 1, read_from - 1)]
        for (_, before), (behind, _) in pairwise([*first, *spans]):
            if before >= self.end:
                return
            if before + 1 == behind:
                continue
            for each in self._ranges.available_between(before + 1, behind - 1):
                yield after(each, Event.VANISH, settings)

    def decide_acknowledge(
        self,
        member_id: MemberId,
        batches: Sequence[AckBatch],
        settings: ShareSettings,
        due_after: DueAfter = at_once,
    ) -> tuple[Change, tuple[Range, ...]]:
        """All of it or nothing; the second value are the renewed leases.

        `due_after` says when a record that is given back after so many attempts is tried again.
        """
        _check_form(batches)
        changed: list[Range] = []
        renewed: list[Range] = []
        last_done = -1
        for batch in batches:
            # What lies below the start is done with: a late word about it changes nothing.
            if batch.last < self.start:
                continue
            self._check_place(batch, last_done)
            last_done = batch.last
            for each, event in self._acknowledged(member_id, batch, settings):
                if event is not Event.RENEW:
                    changed.append(ended(each, event, settings, due_after))
                    continue
                result = after(each, event, settings)
                lease = result._replace(member_id=member_id, lease_ms=settings.lease_ms)
                renewed.append(lease)
                # Deadlines are not stored: there is news only if the duration is another one.
                changed += [] if lease == each else [lease]
        return self.change_of(changed), joined(renewed)

    def _check_place(self, batch: AckBatch, last_done: int) -> None:
        if self.start == self.end:
            raise Refused(Reason.INVALID_RECORD_STATE, f"offset {batch.first} is not leased")
        if batch.last >= self.end:
            raise Refused(
                Reason.INVALID_REQUEST, f"offset {batch.last} is past the delivered records"
            )
        if max(batch.first, self.start) <= last_done:
            raise Refused(Reason.INVALID_RECORD_STATE, f"offset {last_done} is acknowledged twice")

    def _acknowledged(
        self, member_id: MemberId, batch: AckBatch, settings: ShareSettings
    ) -> Iterator[tuple[Range, Event]]:
        for first, last, kind in _runs(batch):
            for each in self._ranges.between(max(first, self.start), last):
                if each.state is not RecordState.LEASED:
                    problem = f"offset {each.first} is not leased"
                elif each.member_id != member_id:
                    problem = f"another member has offset {each.first}"
                elif kind is AckType.RENEW and not settings.is_renewable:
                    problem = "leases of this group can't be renewed"
                else:
                    yield each, EVENTS[kind]
                    continue
                raise Refused(Reason.INVALID_RECORD_STATE, problem)

    def decide_release(self, member_id: MemberId, settings: ShareSettings) -> Change:
        """The session was closed, the connection is lost, or the member is gone."""
        leases = self._ranges.leases_of(member_id)
        return self.change_of([after(each, Event.CLOSE, settings) for each in leases])

    def decide_undone(
        self,
        member_id: MemberId,
        settings: ShareSettings,
        acquired: Sequence[AcquiredRange] | None = None,
    ) -> Change:
        """What the member was given never reached it, so that attempt does not count. Without
        `acquired`, that is all it has."""
        leases: Iterable[Range] = self._ranges.leases_of(member_id)
        if acquired is not None:
            leases = self._still_leased(member_id, acquired)
        return self.change_of([after(each, Event.UNDO, settings) for each in leases])

    def _still_leased(
        self, member_id: MemberId, acquired: Iterable[AcquiredRange]
    ) -> Iterator[Range]:
        for first, last, attempt in acquired:
            lease = RecordState.LEASED, attempt, member_id
            for each in self._ranges.between(max(first, self.start), last):
                if (each.state, each.attempts, each.member_id) == lease:
                    yield each

    def decide_purged(self, end: int, settings: ShareSettings) -> Change:
        """Nothing below `end` is delivered any more; who has a record keeps it."""
        free = (RecordState.AVAILABLE, RecordState.DELAYED, RecordState.BLOCKED)
        waiting = (each for each in self._ranges.between(self.start, end - 1))
        gone = [after(each, Event.PURGE, settings) for each in waiting if each.state in free]
        if self.end < end:
            gone.append(Range(self.end, end - 1, RecordState.ACKED, 0))
        return self.change_of(gone)

    def decide_expiry(self, ranges: Iterable[Range], settings: ShareSettings) -> Change:
        """Leases whose time is over. What is not leased as they say any more is left alone.

        A lease that was renewed or given again after a closed session looks the same: it is for the
        host to name only those whose own deadline is over.
        """
        changed: list[Range] = []
        # Leases of one owner and attempt may overlap here, and must not be looked at twice.
        behind: dict[tuple[MemberId | None, int], int] = {}
        for lease in sorted(ranges, key=_first):
            owner = lease.member_id, lease.attempts
            first = max(lease.first, behind.get(owner, self.start))
            for each in self._ranges.between(first, lease.last):
                is_same = (each.member_id, each.attempts) == owner
                if each.state is RecordState.LEASED and is_same:
                    changed.append(after(each, Event.EXPIRE, settings))
            behind[owner] = max(first, lease.last + 1)
        return self.change_of(changed)

    def decide_due(
        self, now_ms: int, settings: ShareSettings, ranges_max: int | None = None
    ) -> Change:
        """What was delayed until now can be delivered. It follows from what is stored, so this
        change needs not be."""
        due = islice(self._ranges.due(now_ms), ranges_max)
        return self.change_of([after(each, Event.DUE, settings) for each in due])

    def decide_look(
        self,
        spans: Sequence[tuple[int, int]],
        later: Sequence[Later],
        settings: ShareSettings,
    ) -> Change:
        """Batches were looked into, of which some may be new. `later` are the records in them that
        are to be delivered at another time. Offsets between two batches have no record."""
        end = self.end
        looked: list[Range] = []
        delayed = iter([each for each in later if each.last >= end])
        next_one = next(delayed, None)
        for first, last in spans:
            if last < end:
                continue
            if first > end:
                looked.append(Range(end, first - 1, RecordState.ACKED, 0))
            at = max(first, end)
            while next_one is not None and next_one.first <= last:
                if at < next_one.first:
                    looked.append(Range(at, next_one.first - 1, RecordState.AVAILABLE, 0))
                new = Range(max(at, next_one.first), next_one.last, RecordState.AVAILABLE, 0)
                looked.append(after(new, Event.POSTPONE, settings, due_ms=next_one.due_ms))
                at, next_one = next_one.last + 1, next(delayed, None)
            if at <= last:
                looked.append(Range(at, last, RecordState.AVAILABLE, 0))
            end = last + 1
        return self.change_of(looked)

    def decide_outdated(
        self, spans: Iterable[tuple[int, int]], settings: ShareSettings
    ) -> tuple[Change, int]:
        """Records whose time to live is over are given up, if they could be delivered now, or wait
        only for an earlier one of their key: once that is given up they could be. The second value
        says how many. A lease is left alone: who has a record may finish it."""
        expired = [
            after(each, Event.OUTDATE, settings)
            for first, last in spans
            for each in self._ranges.between(first, last)
            if each.state in (RecordState.AVAILABLE, RecordState.BLOCKED)
        ]
        count = sum(each.last - each.first + 1 for each in expired)
        return self.change_of(expired), count

    def decide_order(
        self, blocked: Iterable[tuple[int, int]], freed: Iterable[int], settings: ShareSettings
    ) -> Change:
        """Which records wait for an earlier one of their key, as first and last offsets, and which
        do not any more. It follows from the log and is never stored."""
        changed = [
            after(each, Event.BLOCK, settings)
            for first, last in blocked
            for each in self._ranges.available_between(first, last)
        ]
        for offset in freed:
            each = self._ranges.at(offset)
            if each is not None and each.state is RecordState.BLOCKED:
                changed.append(after(cut(each, offset, offset), Event.UNBLOCK, settings))
        return self.change_of(changed)

    def dying(self) -> Iterator[Range]:
        """What has to reach the dead-letter topic, in the order of its offsets."""
        return self._ranges.dying()

    def decide_buried(
        self,
        offsets: Iterable[int],
        settings: ShareSettings,
        letters: LetterState | None = None,
    ) -> Change:
        """The dead-letter topic has them. What is not dying any more is left alone."""
        found = (
            each
            for at in offsets
            for each in chain(self._ranges.left_between(at, at), self._ranges.between(at, at))
        )
        dead = [after(each, Event.BURY, settings) for each in found if each.state is _DYING]
        return replace(self.change_of(dead), letters=letters)

    def is_dying(self, offset: int) -> bool:
        if offset < self.start:
            return any(True for _ in self._ranges.left_between(offset, offset))
        found = self._ranges.at(offset)
        return found is not None and found.state is _DYING

    def decide_reopened(
        self, redrives: Mapping[int, int], settings: ShareSettings, letters: LetterState
    ) -> tuple[Change, int]:
        """Brings records back from the dead, each with how often that happened to it before. The
        second value says how many: one that is alive, or was acked, is left alone.

        Nothing is known of what lies below the start. Who asks knows that these are dead, and
        everything else there stays done with.
        """
        offsets = sorted(at for at in redrives if at < self.end and self._may_reopen(at))
        start = min([self.start, *offsets[:1]])
        changed: list[Range] = []
        for first, last in _between(start, offsets, self.start):
            below = Range(first, last, RecordState.DEAD, 0)
            changed += _without(below, list(self._ranges.left_between(first, last)))
        for offset in offsets:
            dead = Range(offset, offset, RecordState.DEAD, 0, redrives=redrives[offset])
            changed.append(after(dead, Event.REOPEN, settings))
        ranges = joined(sorted(changed, key=_first))
        return Change(start=start, ranges=ranges, letters=letters), len(offsets)

    def _may_reopen(self, offset: int) -> bool:
        if offset < self.start:
            return not self.is_dying(offset)
        found = self._ranges.at(offset)
        return found is not None and found.state is RecordState.DEAD

    def decide_log_start(self, log_start: int) -> Change:
        """Retention or DeleteRecords removed everything below `log_start`."""
        if log_start <= self.start:
            return Change(start=self.start)
        return Change(start=self._behind_done(log_start, max(log_start, self.end)))

    def lost_below(self, log_start: int) -> int:
        """How many offsets are lost, not done with, if the log begins there."""
        if log_start <= self.start:
            return 0
        done = (
            each.last - each.first + 1
            for each in self._ranges.between(self.start, log_start - 1)
            if each.state in PASSED
        )
        return log_start - self.start - sum(done)

    def change_of(self, changed: list[Range]) -> Change:
        """The difference, with the start moved as far as it gets by that."""
        ranges = joined(sorted(changed, key=_first))
        start = self._start_after(ranges)
        # What is done goes with the start; what is dying stays, and so must be said.
        kept = (
            each if each.state is _DYING or each.last < self.start else cut(each, start, each.last)
            for each in ranges
            if each.last >= start or each.state is _DYING or each.last < self.start
        )
        return Change(start=start, ranges=tuple(kept))

    def _start_after(self, changed: Sequence[Range]) -> int:
        start = self.start
        for each in changed:
            if each.last < start:
                continue
            start = self._behind_done(start, each.first)
            if start < each.first or each.state not in PASSED:
                return start
            start = each.last + 1
        return self._behind_done(start, max(start, self.end))

    def _behind_done(self, offset: int, end: int) -> int:
        """The first offset from here on that is not done, at most `end`."""
        while offset < end:
            each = self._ranges.at(offset)
            if each is None or each.state not in PASSED:
                break
            offset = min(end, each.last + 1)
        return offset

    def validate(self) -> None:
        """Raises AssertionError if what belongs together does not agree."""
        self._ranges.validate()
        first = self._ranges.at(self.start)
        assert first is None or first.state not in PASSED, f"the start is before {first}"
        for each in self.leases():
            assert each.attempts > 0, f"{each} was never delivered"
            assert each.lease_ms > 0, f"{each} has no end"


def _between(start: int, offsets: Sequence[int], end: int) -> Iterator[tuple[int, int]]:
    """The runs from `start` up to `end` without these offsets."""
    at = start
    for offset in offsets:
        if offset >= end:
            break
        if at < offset:
            yield at, offset - 1
        at = offset + 1
    if at < end:
        yield at, end - 1


def _without(whole: Range, others: Sequence[Range]) -> Iterator[Range]:
    """The range with these in their places."""
    at = whole.first
    for other in others:
        if at < other.first:
            yield whole._replace(first=at, last=other.first - 1)
        yield other
        at = other.last + 1
    if at <= whole.last:
        yield whole._replace(first=at)


def ended(each: Range, event: Event, settings: ShareSettings, due_after: DueAfter) -> Range:
    due_ms = due_after(each.attempts) if event is Event.RELEASE else 0
    if due_ms:
        return after(each, Event.POSTPONE, settings, due_ms=due_ms)
    return after(each, event, settings)


def _check_form(batches: Sequence[AckBatch]) -> None:
    """What Kafka refuses before it looks at any record. Batches may meet in one offset."""
    last_before = -1
    for batch in batches:
        count = batch.last - batch.first + 1
        if count < 1:
            raise Refused(Reason.INVALID_REQUEST, f"{batch.first} to {batch.last} is no range")
        if batch.first < last_before:
            raise Refused(Reason.INVALID_REQUEST, f"offset {batch.first} comes after {last_before}")
        if len(batch.types) not in (1, count):
            raise Refused(Reason.INVALID_REQUEST, f"{len(batch.types)} types for {count} offsets")
        if not _ACK_TYPES.issuperset(batch.types):
            raise Refused(Reason.INVALID_REQUEST, f"unknown types among {set(batch.types)}")
        last_before = batch.last


def _runs(batch: AckBatch) -> Iterator[tuple[int, int, AckType]]:
    """Neighbours that have the same type."""
    if len(batch.types) == 1:
        yield batch.first, batch.last, AckType(batch.types[0])
        return
    first = batch.first
    for kind, offsets in groupby(batch.types):
        count = sum(1 for _ in offsets)
        yield first, first + count - 1, AckType(kind)
        first += count
