"""The states of a record and every way from one to another: the machine knows no others.

A record that is given up is dying until it is in the dead-letter topic. Where there is none, it is
dead at once. Nothing leads out of ACKED; a redrive leads out of DEAD.
"""

from enum import Enum, auto
from types import MappingProxyType
from typing import NamedTuple

from penstock.queues.commands import AckType, Death, Range, RecordState, ShareSettings


class Event(Enum):
    LEASE = auto()
    ACCEPT = auto()
    RELEASE = auto()
    POSTPONE = auto()
    REJECT = auto()
    GAP = auto()
    RENEW = auto()
    EXPIRE = auto()
    CLOSE = auto()
    UNDO = auto()
    PURGE = auto()
    OUTDATE = auto()
    VANISH = auto()
    DUE = auto()
    BLOCK = auto()
    UNBLOCK = auto()
    BURY = auto()
    REOPEN = auto()


class Step(NamedTuple):
    after: RecordState
    # What it adds to the number of attempts; None makes it zero.
    attempts: int | None
    why: str
    # Whether a record that was tried often enough is given up instead.
    is_limited: bool = False


_AVAILABLE = RecordState.AVAILABLE
_LEASED = RecordState.LEASED
_ACKED = RecordState.ACKED
_DYING = RecordState.DYING
_DEAD = RecordState.DEAD
_DELAYED = RecordState.DELAYED
_BLOCKED = RecordState.BLOCKED

TRANSITIONS = MappingProxyType(
    {
        (_AVAILABLE, Event.LEASE): Step(_LEASED, +1, "a member gets it"),
        (_AVAILABLE, Event.POSTPONE): Step(_DELAYED, 0, "its producer wants it delivered later"),
        (_AVAILABLE, Event.VANISH): Step(
            _ACKED, None, "the log has no record here, or none any more"
        ),
        (_AVAILABLE, Event.BLOCK): Step(_BLOCKED, 0, "an earlier record of its key is not done"),
        (_BLOCKED, Event.UNBLOCK): Step(_AVAILABLE, 0, "it is the first of its key by now"),
        (_DELAYED, Event.DUE): Step(_AVAILABLE, 0, "its time has come"),
        (_LEASED, Event.ACCEPT): Step(_ACKED, 0, "the member has processed it"),
        (_LEASED, Event.RELEASE): Step(_AVAILABLE, 0, "the member gives it back", is_limited=True),
        (_LEASED, Event.POSTPONE): Step(
            _DELAYED, 0, "the member gives it back, to be tried later", is_limited=True
        ),
        (_LEASED, Event.REJECT): Step(_DYING, 0, "the member says that nobody can process it"),
        (_LEASED, Event.GAP): Step(_ACKED, 0, "the member found no record here"),
        (_LEASED, Event.RENEW): Step(_LEASED, 0, "the member needs more time"),
        (_LEASED, Event.EXPIRE): Step(_AVAILABLE, 0, "the lease ran out", is_limited=True),
        # As in Kafka, the attempt counts: a member that dies of a record loses its session too.
        (_LEASED, Event.CLOSE): Step(
            _AVAILABLE, 0, "the member's session is over", is_limited=True
        ),
        (_LEASED, Event.UNDO): Step(_AVAILABLE, -1, "it never reached the one who polled"),
        (_AVAILABLE, Event.PURGE): Step(_ACKED, None, "an operator does not want it delivered"),
        (_DELAYED, Event.PURGE): Step(_ACKED, None, "an operator does not want it delivered"),
        (_BLOCKED, Event.PURGE): Step(_ACKED, None, "an operator does not want it delivered"),
        (_AVAILABLE, Event.OUTDATE): Step(_DYING, 0, "its time to live is over"),
        (_BLOCKED, Event.OUTDATE): Step(_DYING, 0, "its time to live is over"),
        (_DYING, Event.BURY): Step(_DEAD, 0, "the dead-letter topic has it"),
        (_DEAD, Event.REOPEN): Step(_AVAILABLE, None, "an operator wants it to be tried again"),
    }
)

EVENTS = MappingProxyType(
    {
        AckType.GAP: Event.GAP,
        AckType.ACCEPT: Event.ACCEPT,
        AckType.RELEASE: Event.RELEASE,
        AckType.REJECT: Event.REJECT,
        AckType.RENEW: Event.RENEW,
    }
)


_DEATHS = MappingProxyType({Event.REJECT: Death.REJECTED, Event.OUTDATE: Death.EXPIRED})


def after(before: Range, event: Event, settings: ShareSettings, *, due_ms: int = 0) -> Range:
    """What becomes of a range. A lease's owner is for the caller to fill in."""
    step = TRANSITIONS[before.state, event]
    attempts = 0 if step.attempts is None else before.attempts + step.attempts
    state, death = step.after, Death.NONE
    if step.is_limited and attempts >= settings.delivery_attempts_max:
        state = _DYING
    is_kept = settings.has_dead_letters and (event is not Event.OUTDATE or settings.keeps_expired)
    if state is _DYING and not is_kept:
        state = _DEAD
    if state is _DYING:
        death = _DEATHS.get(event, Death.TRIED_TOO_OFTEN)
    return Range(
        before.first,
        before.last,
        state,
        attempts,
        due_ms=due_ms if state is _DELAYED else 0,
        death=death,
        redrives=0 if state in (_ACKED, _DEAD) else before.redrives + (event is Event.REOPEN),
    )
