"""What is said of single records by the tokens of their leases, and what comes of each.

A member of Kafka's protocol names ranges, and all of a request or nothing is done. A client
of a door has a token per record (model/lease_tokens.py), and one that is not good any more
must not spoil the others. So each has an outcome of its own.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from penstock.model.lease_tokens import is_door_member, is_proven
from penstock.queues.backoff import Waits
from penstock.queues.commands import AcquiredRange, Change, Range, RecordState, ShareSettings
from penstock.queues.leading import LedQueue
from penstock.queues.machine import DueAfter, ShareMachine, at_once, ended
from penstock.queues.ranges import PASSED, cut, joined
from penstock.queues.transitions import Event, after
from penstock.replication.commit import Commit


class Verb(StrEnum):
    """What somebody says of a record."""

    ACK = "ack"
    # To be tried again, at once or later.
    NACK = "nack"
    # The lease begins again, with its own duration.
    EXTEND = "extend"
    REJECT = "reject"
    # It never reached the one who polled.
    UNDO = "undo"


class Outcome(StrEnum):
    """What came of it. Everything but OK has changed nothing."""

    OK = "ok"
    # The lease is over: it ran out, or the record was given back or delivered again since.
    EXPIRED = "expired"
    # Nobody gets the record any more: it was acked, given up, or purged.
    DONE = "done"
    # The queue knows of no lease with this token.
    UNKNOWN = "unknown"
    # Leases of this group can't be extended.
    FORBIDDEN = "forbidden"


class Claim(NamedTuple):
    """A token, of a queue that is known."""

    offset: int
    attempt: int
    proof: bytes


class Settled(NamedTuple):
    change: Change
    outcomes: Sequence[Outcome]
    # Leases that begin again.
    extended: Sequence[Range]


_OK = Outcome.OK
_EVENTS = {
    Verb.ACK: Event.ACCEPT,
    Verb.NACK: Event.RELEASE,
    Verb.EXTEND: Event.RENEW,
    Verb.REJECT: Event.REJECT,
    Verb.UNDO: Event.UNDO,
}


def decide_settled(
    machine: ShareMachine,
    verb: Verb,
    claims: Sequence[Claim],
    settings: ShareSettings,
    *,
    lease_ms: int = 0,
    due_after: DueAfter = at_once,
) -> Settled:
    """`lease_ms` is for extended leases, `due_after` for records that are given back."""
    outcomes: dict[Claim, Outcome] = {}
    good: list[tuple[Range, int, int]] = []
    found: Range | None = None
    for claim in sorted(claims):
        if claim in outcomes:
            continue
        offset = claim.offset
        if found is None or not found.first <= offset <= found.last:
            found = machine.at(offset) if offset >= machine.start else None
        outcome = _judged(claim, found, machine)
        if outcome is Outcome.OK and verb is Verb.EXTEND and not settings.is_renewable:
            outcome = Outcome.FORBIDDEN
        outcomes[claim] = outcome
        if outcome is Outcome.OK:
            assert found is not None
            _add(good, found, offset)
    changed: list[Range] = []
    extended: list[Range] = []
    for lease, first, last in good:
        part = cut(lease, first, last)
        if verb is Verb.EXTEND:
            renewed = after(part, Event.RENEW, settings)
            renewed = renewed._replace(member_id=part.member_id, lease_ms=lease_ms)
            extended.append(renewed)
            changed += [] if renewed == part else [renewed]
        else:
            changed.append(ended(part, _EVENTS[verb], settings, due_after))
    return Settled(
        machine.change_of(changed), [outcomes[each] for each in claims], joined(extended)
    )


def _add(good: list[tuple[Range, int, int]], lease: Range, offset: int) -> None:
    """Neighbours of one lease are one part of it: most often a poll is settled as a whole."""
    if good and good[-1][0] is lease and good[-1][2] + 1 == offset:
        good[-1] = (lease, good[-1][1], offset)
    else:
        good.append((lease, offset, offset))


def _judged(claim: Claim, found: Range | None, machine: ShareMachine) -> Outcome:
    """What the claim is worth, by what is known of its offset."""
    if claim.offset < machine.start:
        return Outcome.DONE
    if found is None:
        return Outcome.UNKNOWN
    if found.state in PASSED:
        return Outcome.DONE
    if found.attempts > claim.attempt or (found.redrives and found.attempts < claim.attempt):
        return Outcome.EXPIRED
    if found.state is not RecordState.LEASED:
        return Outcome.EXPIRED if found.attempts == claim.attempt else Outcome.UNKNOWN
    if found.attempts < claim.attempt:
        return Outcome.UNKNOWN
    member_id = found.member_id
    assert member_id is not None
    is_own = is_door_member(member_id)
    if is_own and is_proven(claim.proof, member_id, claim.offset, claim.attempt):
        return Outcome.OK
    return Outcome.UNKNOWN


def settle(
    queue: LedQueue,
    verb: Verb,
    claims: Sequence[Claim],
    *,
    lease_ms: int = 0,
    delay_ms: int | None = None,
) -> tuple[Sequence[Outcome], Commit]:
    """The outcomes are true once the commit is settled. `delay_ms` says how long a record that is
    given back waits; without it the group's settings do. The queue must be open."""
    settings = queue.settings
    settled = decide_settled(
        queue.machine,
        verb,
        claims,
        settings,
        lease_ms=lease_ms,
        due_after=_due_after(queue, settings, delay_ms),
    )
    commit = queue.settle(settled.change, settled.extended, lease_ms)
    if queue.is_traced:
        judged = zip(claims, settled.outcomes, strict=True)
        good = (AcquiredRange(at, at, attempt) for (at, attempt, _), ok in judged if ok is _OK)
        queue.note(_EVENTS[verb], good, commit)
    return settled.outcomes, commit


def _due_after(queue: LedQueue, settings: ShareSettings, delay_ms: int | None) -> DueAfter:
    now_ms = queue.clock.now_ms()
    if delay_ms is None:
        return Waits(settings.backoff, now_ms, queue.random_below).due_after
    due_ms = now_ms + delay_ms if delay_ms else 0
    return lambda _: due_ms
