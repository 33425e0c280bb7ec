"""Leased records in the hands of this client: what to tell the broker about each, and when.

Not thread-safe: its owner holds a lock around every call.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from typing import NamedTuple, TypeAlias
from uuid import UUID

from penstock.client.errors import ClientError
from penstock.client.wire.errors import place as words_of
from penstock.model.ids import TopicPartition
from penstock.records.record import Record

# A lease is renewed when this part of its time is over: two attempts may fail.
RENEW_AFTER = 0.4


class AckType(IntEnum):
    """What becomes of a leased record; Kafka's numbers."""

    # There is no record at this offset.
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class LeaseLost(ClientError):
    """The broker has given the record to somebody else, or is free to."""


class OutcomeUnknown(LeaseLost):
    """The broker's answer got lost."""


class SharePlace(NamedTuple):
    """A partition of a queue; the id tells a topic from a later one of the same name."""

    topic_id: UUID
    partition: int


class Lease:
    """A record that nobody else has while its lease lasts; settled once, in one of three ways.

    The result of each is there when the broker has answered; it is LeaseLost if the time was over.
    """

    def __init__(
        self,
        partition: TopicPartition,
        topic_id: UUID,
        record: Record,
        attempt: int,
        settle: "Callable[[Lease, AckType], Future[None]]",
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.record = record
        # Counts from 1; grows if the broker took the record back and gave it to us again.
        self.attempt = attempt
        self._settle = settle
        self._is_settled = False

    def accept(self) -> "Future[None]":
        """It is done."""
        return self._once(AckType.ACCEPT)

    def release(self) -> "Future[None]":
        """Somebody shall try it again; the attempt counts."""
        return self._once(AckType.RELEASE)

    def reject(self) -> "Future[None]":
        """It can't be done, and nobody shall try it again."""
        return self._once(AckType.REJECT)

    def _once(self, wish: AckType) -> "Future[None]":
        if self._is_settled:
            raise ClientError("A lease can be settled only once.")
        self._is_settled = True
        return self._settle(self, wish)


@dataclass(slots=True, kw_only=True, eq=False)
class Held:
    """A lease as the books have it."""

    place: SharePlace
    lease: Lease
    wish: AckType | None = None
    outcome: "Future[None]" = field(default_factory=Future)
    # Whether the wish may have reached a broker that did not answer.
    is_in_doubt: bool = False

    @property
    def offset(self) -> int:
        return self.lease.record.offset


class Ack(NamedTuple):
    """One statement about a range of offsets; of records, the range is one offset."""

    first: int
    last: int
    type: AckType
    held: Held | None = None


# Statements that stand or fall together: a broker takes all of a partition in a request, or none.
AckGroup: TypeAlias = list[Ack]


class LeaseBook:
    def __init__(self) -> None:
        self._held: dict[SharePlace, dict[int, Held]] = {}
        # What shall be said next, in one group; one per offset.
        self._due: dict[SharePlace, dict[int, Held]] = {}
        # What must be said alone, one group per request.
        self._alone: dict[SharePlace, deque[AckGroup]] = {}
        self._renewals: list[tuple[float, int, Held]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def __iter__(self) -> Iterator[Held]:
        return (held for ones in self._held.values() for held in ones.values())

    # Leases come and go

    def add(self, held: Held) -> Held:
        """What the book has from now on; a record that is still in our hands stays where it is.

        After a lost connection the broker may lease it to us again while it is being worked on.
        """
        known = self._held.setdefault(held.place, {}).get(held.offset)
        if known is not None and known.wish is AckType.RELEASE:
            # That has happened, and this is the next attempt.
            self._finish(known)
            known = None
        if known is not None:
            known.lease.attempt = held.lease.attempt
            known.is_in_doubt = False
            return known
        self._held[held.place][held.offset] = held
        return held

    def find(self, lease: Lease) -> Held | None:
        place = SharePlace(lease.topic_id, lease.partition.partition)
        held = self._held.get(place, {}).get(lease.record.offset)
        return held if held is not None and held.lease is lease else None

    def add_gap(self, place: SharePlace, first: int, last: int) -> None:
        self._alone.setdefault(place, deque()).append([Ack(first, last, AckType.GAP)])

    def wish(self, held: Held, wish: AckType) -> None:
        assert held.wish is None, "a lease is settled once"
        held.wish = wish
        self._due.setdefault(held.place, {})[held.offset] = held

    def renew_after(self, held: Held, now: float, duration_s: float) -> None:
        due = now + duration_s * RENEW_AFTER
        heapq.heappush(self._renewals, (due, next(self._numbers), held))

    # What to say

    def next_renewal(self) -> float | None:
        while self._renewals and not self._is_open(self._renewals[0][2]):
            heapq.heappop(self._renewals)
        return self._renewals[0][0] if self._renewals else None

    def note_due(self, now: float) -> None:
        """Renewals whose time has come are said with the next request."""
        while (due := self.next_renewal()) is not None and due <= now:
            held = heapq.heappop(self._renewals)[2]
            self._due.setdefault(held.place, {})[held.offset] = held

    def places_due(self) -> set[SharePlace]:
        return {*self._due, *self._alone}

    def take_due(self, place: SharePlace) -> AckGroup:
        """What one request may say about the partition."""
        alone = self._alone.get(place)
        if alone:
            group = alone.popleft()
            if not alone:
                del self._alone[place]
            # They may have been settled or given up since.
            return [one for one in map(_as_it_is_now, group) if self._is_worth_saying(one)]
        due = self._due.pop(place, {})
        return [_ack(due[offset]) for offset in sorted(due) if self._is_known(due[offset])]

    # What the broker says to it

    def succeeded(self, group: Iterable[Ack], now: float, duration_s: float) -> None:
        for ack in group:
            if ack.held is None:
                continue
            if ack.type is AckType.RENEW:
                self.renew_after(ack.held, now, duration_s)
            else:
                self._finish(ack.held)

    def refused(self, place: SharePlace, group: AckGroup, sentence: str) -> str | None:
        """Splits the group until it is clear which lease is meant; returns a refused renewal."""
        if len(group) > 1:
            middle = len(group) // 2
            waiting = self._alone.setdefault(place, deque())
            waiting.extendleft((group[middle:], group[:middle]))
            return None
        for ack in group:
            if ack.held is None:
                continue
            if ack.type is AckType.RENEW:
                # It can't be held longer; what becomes of it is seen when it is settled.
                return sentence
            self._finish(ack.held, _lost(ack.held, sentence))
        return None

    def put_back(self, place: SharePlace, group: AckGroup, *, is_in_doubt: bool) -> None:
        """It is said again later; a gap is not, since the broker will ask about it again."""
        for ack in group:
            if ack.held is None or not self._is_known(ack.held):
                continue
            ack.held.is_in_doubt |= is_in_doubt and ack.type is not AckType.RENEW
            self._due.setdefault(place, {})[ack.held.offset] = ack.held

    def session_lost(self, places: Iterable[SharePlace]) -> None:
        """The broker has taken everything back, or another one decides now.

        A release in doubt has happened either way. The rest is tried with the leader.
        """
        for place in places:
            self._alone.pop(place, None)
            for held in list(self._held.get(place, {}).values()):
                if held.wish is AckType.RELEASE and held.is_in_doubt:
                    self._finish(held)
                else:
                    self._due.setdefault(place, {})[held.offset] = held

    def give_up(self, place: SharePlace, reason: str) -> None:
        """The partition is gone."""
        for held in list(self._held.pop(place, {}).values()):
            if held.wish is not None:
                self._finish(held, _lost(held, reason))
        self._due.pop(place, None)
        self._alone.pop(place, None)

    def drop_all(self, reason: str) -> None:
        """Nothing can be said any more."""
        for held in list(self):
            if held.wish is not None:
                self._finish(held, _lost(held, reason))
        self._due.clear()
        self._alone.clear()

    def forget(self, held: Held) -> None:
        self._held.get(held.place, {}).pop(held.offset, None)
        self._due.get(held.place, {}).pop(held.offset, None)

    # Small things

    def _finish(self, held: Held, failure: ClientError | None = None) -> None:
        self.forget(held)
        if failure is None:
            held.outcome.set_result(None)
        else:
            held.outcome.set_exception(failure)

    def _is_known(self, held: Held) -> bool:
        return self._held.get(held.place, {}).get(held.offset) is held

    def _is_open(self, held: Held) -> bool:
        return held.wish is None and self._is_known(held)

    def _is_worth_saying(self, ack: Ack) -> bool:
        return ack.held is None or self._is_known(ack.held)


def _ack(held: Held) -> Ack:
    wish = AckType.RENEW if held.wish is None else held.wish
    return Ack(held.offset, held.offset, wish, held)


def _as_it_is_now(ack: Ack) -> Ack:
    return ack if ack.held is None else _ack(ack.held)


def failed_outcome(lease: Lease, reason: str) -> "Future[None]":
    outcome: Future[None] = Future()
    outcome.set_exception(_lease_lost(lease, reason))
    return outcome


def _lost(held: Held, reason: str) -> LeaseLost:
    return _lease_lost(held.lease, reason, is_in_doubt=held.is_in_doubt)


def _lease_lost(lease: Lease, reason: str, *, is_in_doubt: bool = False) -> LeaseLost:
    where = f"offset {lease.record.offset} of {words_of(lease.partition)}"
    reason = reason.rstrip(".")
    if is_in_doubt:
        return OutcomeUnknown(f"Whether the broker took note of {where} is not known: {reason}.")
    return LeaseLost(f"The lease of {where} is lost: {reason}.")
