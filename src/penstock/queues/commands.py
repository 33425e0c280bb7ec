"""What is asked of a share partition and what it answers, in the model's words.

A share partition is one partition of a topic under one share group: a queue. Kafka's words for
the states are in brackets. Their numbers are Kafka's, and they are stored.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from penstock.model.ids import MemberId
from penstock.queues.backoff import NO_BACKOFF, Backoff
from penstock.queues.letters import Death as Death
from penstock.queues.letters import LetterState

LEASE_MS = 30_000
DELIVERY_ATTEMPTS_MAX = 5
LEASED_MAX = 2_000
# Records that are done while an earlier one is not, that are delivered later, or that wait for a
# dead-letter topic. Each may be a range of its own in memory.
WAITING_MAX = 1_000_000
# How far a queue with order per key looks past records that wait for an earlier one of their key.
BLOCKED_MAX = 100_000


class RecordState(IntEnum):
    # Can be delivered now.
    AVAILABLE = 0
    # A member has it (acquired).
    LEASED = 1
    # Processed (acknowledged), or there is no record at this offset.
    ACKED = 2
    # On its way to a dead-letter topic.
    DYING = 3
    # Given up: rejected, or tried too often (archived).
    DEAD = 4
    # Is delivered at a later time. Kafka does not have it.
    DELAYED = 5
    # Available, but an earlier record of its key is not done with. Only the leader of a queue
    # with order per key knows it: it follows from the log, and is never stored.
    BLOCKED = 6


class Range(NamedTuple):
    """Offsets from first to last, both included, in one state."""

    first: int
    last: int
    state: RecordState
    # How often they were delivered.
    attempts: int
    # Of a lease: who has it, and how long it was given for.
    member_id: MemberId | None = None
    lease_ms: int = 0
    # Of delayed records: when they are delivered, by the wall clock.
    due_ms: int = 0
    # Of dying records: why.
    death: Death = Death.NONE
    # How often they were brought back from the dead, as long as they are not done with.
    redrives: int = 0


class Later(NamedTuple):
    """Records of one batch that their producer wants delivered at a later time, all at the same."""

    first: int
    last: int
    due_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The whole difference that a decision makes: what is stored, and what `apply` takes."""

    # The first offset that is not done with from now on. Of everything below it, only dying records
    # are known.
    start: int
    # In the order of their offsets; none overlaps another.
    ranges: tuple[Range, ...] = ()
    # What is true of dead letters from now on, if that changes.
    letters: LetterState | None = None

    @property
    def end(self) -> int:
        """The first offset that it says nothing of."""
        return max(self.start, self.ranges[-1].last + 1) if self.ranges else self.start

    def cut_at(self, end: int) -> "Change":
        """A queue as a whole, without what lies from `end` on."""
        kept = (each._replace(last=min(each.last, end - 1)) for each in self.ranges)
        ranges = tuple(each for each in kept if each.first <= each.last)
        letters = self.letters
        if letters is not None and letters.plan is not None:
            # Other records may come to have these offsets.
            letters = letters.dropped(keeps_sender=False)
        return Change(start=min(self.start, end), ranges=ranges, letters=letters)


class AckType(IntEnum):
    """What a member says about an offset. The values are those of Kafka's protocol."""

    # There is no record at this offset.
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    # Still at work: the lease begins again (KIP-1222).
    RENEW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AckBatch:
    first: int
    last: int
    # One type for all offsets, or one for each.
    types: tuple[int, ...]


class AcquiredRange(NamedTuple):
    """Records that a member was given, and their delivery attempt, counted from 1."""

    first: int
    last: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings:
    """What one share group is set to, as far as a share partition needs it."""

    lease_ms: int = LEASE_MS
    delivery_attempts_max: int = DELIVERY_ATTEMPTS_MAX
    # How many records of a partition may be leased at a time (share.partition.max.record.locks).
    leased_max: int = LEASED_MAX
    # How many may be done behind one that is not, or wait for their time.
    waiting_max: int = WAITING_MAX
    # How many may wait for an earlier one of their key.
    blocked_max: int = BLOCKED_MAX
    is_renewable: bool = True
    # Whether nothing is delivered for now.
    is_paused: bool = False
    # Whether what is given up goes to a dead-letter topic first.
    has_dead_letters: bool = False
    # How long what a member gives back waits until it is tried again.
    backoff: Backoff = NO_BACKOFF
    # Whether producers may say when a record is delivered, and whether a record waits for earlier
    # ones of its key. With either, records are looked into before they are delivered.
    has_delays: bool = False
    has_key_order: bool = False
    # Whether records expire: by a header, or else this long after their timestamp (0 for never);
    # and whether expired ones are dead letters, where there is a topic for them.
    has_expiry: bool = False
    expiry_ms: int = 0
    keeps_expired: bool = False
    # How many records one member, and all members together, may have of all queues of the group
    # that one broker leads; 0 for no limit.
    member_leased_max: int = 0
    group_leased_max: int = 0
