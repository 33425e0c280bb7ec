"""Which records one fetch of a queue gets: first what came back, then what is new.

Batches that are read together are delivered in groups of about `batch_size` records, because a
consumer acks a group at less cost than single batches.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from penstock.model.ids import MemberId
from penstock.queues.commands import AcquiredRange, Range, RecordState, ShareSettings
from penstock.queues.ranges import RangeMap, cut
from penstock.queues.transitions import Event, after

# A record that has been tried less often than this is never throttled (Kafka's minimum).
_THROTTLED_ATTEMPTS_MIN = 2


class Span(NamedTuple):
    """The offsets of one batch in the log."""

    first: int
    last: int

    @property
    def length(self) -> int:
        return self.last - self.first + 1


def throttled_from(attempts_max: int) -> int:
    """How many attempts make a record suspicious: it then goes out with fewer and fewer others, so
    that one that kills its consumer does not use up the attempts of all of them."""
    return max(_THROTTLED_ATTEMPTS_MIN, -(-attempts_max // 2))


def is_last_attempt(attempts: int, attempts_max: int) -> bool:
    """Whether the next attempt is the last: then the record goes out alone."""
    return attempts_max > _THROTTLED_ATTEMPTS_MIN and attempts == attempts_max - 1


def has_space(ranges: RangeMap, settings: ShareSettings) -> bool:
    """Whether the map may learn of new records: those that wait in it take memory."""
    waiting = ranges.waiting_count + ranges.delayed_count + ranges.dying_count
    return waiting < settings.waiting_max and ranges.blocked_count < settings.blocked_max


def groups(spans: Iterable[Span], batch_size: int) -> Iterator[list[Span]]:
    group: list[Span] = []
    for span in spans:
        if group and span.first - group[0].first >= batch_size:
            yield group
            group = []
        group.append(span)
    if group:
        yield group


class Delivery:
    """Collects the leases of one fetch. The machine makes a change of them."""

    def __init__(
        self,
        ranges: RangeMap,
        member_id: MemberId,
        *,
        records_max: int,
        batch_size: int,
        is_exact: bool,
        settings: ShareSettings,
    ) -> None:
        self._ranges = ranges
        self._member_id = member_id
        self._room = min(records_max, settings.leased_max - ranges.leased_count)
        self._batch_size = batch_size
        self._is_exact = is_exact
        self._settings = settings
        self._taken = 0
        # Where the answer's ranges of the present group begin.
        self._joins_from = 0
        self.changed: list[Range] = []
        self.acquired: list[AcquiredRange] = []

    def choose(self, spans: Sequence[tuple[int, int]]) -> None:
        """Looks at no more of the batches than it takes: a read may find many small ones."""
        start, end = self._ranges.start, self._ranges.end
        known = takewhile(lambda span: span.first < end, (Span(*each) for each in spans))
        inside = (Span(max(each.first, start), min(each.last, end - 1)) for each in known)
        for group in groups((each for each in inside if each.length > 0), self._batch_size):
            if self._taken >= self._room or not self._redeliver(group):
                return
        if self._taken < self._room and has_space(self._ranges, self._settings):
            new = (Span(max(first, end), last) for first, last in spans if last >= end)
            self._deliver(new)

    def _redeliver(self, group: list[Span]) -> bool:
        """Leases what is available in a group; says whether more may follow."""
        self._joins_from = len(self.acquired)
        size = sum(span.length for span in group)
        left = self._room - self._taken if self._is_exact else size
        taken_before = self._taken
        attempts_max = self._settings.delivery_attempts_max
        throttle = throttled_from(attempts_max)
        is_throttled = False
        for each in self._available(group):
            if each.attempts >= throttle and not is_throttled:
                if taken_before:
                    return False
                is_throttled = True
                allowed = max(1, size >> (each.attempts - throttle + 1))
                left = min(left, allowed - self._taken)
            if is_last_attempt(each.attempts, attempts_max):
                if self._taken == 0 and left > 0:
                    self._lease(each, 1)
                return False
            if left <= 0:
                break
            left -= self._lease(each, left)
        return not is_throttled

    def _available(self, group: list[Span]) -> Iterator[Range]:
        for span in group:
            yield from self._ranges.available_between(span.first, span.last)

    def _deliver(self, spans: Iterable[Span]) -> None:
        """Leases records for the first time, and notes the offsets between them as done."""
        end, group_first = self._ranges.end, None
        for span in spans:
            # An exact number of records is one range of the answer, however large.
            size = 0 if group_first is None or self._is_exact else span.first - group_first
            if group_first is None or size >= self._batch_size:
                group_first, self._joins_from = span.first, len(self.acquired)
            if span.first > end:
                self.changed.append(Range(end, span.first - 1, RecordState.ACKED, 0))
            end = span.last + 1
            if self._deliver_span(span) >= self._room:
                return

    def _deliver_span(self, span: Span) -> int:
        """Gives how many are leased by now."""
        new = Range(span.first, span.last, RecordState.AVAILABLE, 0)
        count = self._lease(new, self._room - self._taken if self._is_exact else span.length)
        if count < span.length:
            # As in Kafka, a batch that has begun is known to its end.
            self.changed.append(new._replace(first=span.first + count))
        return self._taken

    def _lease(self, each: Range, count_max: int) -> int:
        """Leases the first records of a range, and says how many."""
        first_ones = cut(each, each.first, each.first + count_max - 1)
        leased = after(first_ones, Event.LEASE, self._settings)
        lease_ms = self._settings.lease_ms
        self.changed.append(leased._replace(member_id=self._member_id, lease_ms=lease_ms))
        self._answer(AcquiredRange(leased.first, leased.last, leased.attempts))
        count = leased.last - leased.first + 1
        self._taken += count
        return count

    def _answer(self, new: AcquiredRange) -> None:
        """Neighbours of one group that were tried as often are one range of the answer."""
        last = self.acquired[-1] if len(self.acquired) > self._joins_from else None
        if last and last.last + 1 == new.first and last.attempt == new.attempt:
            self.acquired[-1] = last._replace(last=new.last)
        else:
            self.acquired.append(new)
