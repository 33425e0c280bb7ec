"""The states of a record and every way from one to another: the machine knows no others.

Nothing leads to DYING yet: a record that has been given up is DEAD at once, because there is no
dead-letter topic that it would have to reach first. Nothing leads out of ACKED and DEAD.
"""

from enum import Enum, auto
from types import MappingProxyType
from typing import NamedTuple

from penstock.queues.commands import AckType, Range, RecordState


class Event(Enum):
    LEASE = auto()
    ACCEPT = auto()
    RELEASE = auto()
    REJECT = auto()
    GAP = auto()
    RENEW = auto()
    EXPIRE = auto()
    CLOSE = auto()
    VANISH = auto()


class Step(NamedTuple):
    after: RecordState
    # What it adds to the number of attempts; None makes it zero.
    attempts: int | None
    why: str
    # Whether a record that was tried often enough becomes dead instead.
    is_limited: bool = False


_AVAILABLE = RecordState.AVAILABLE
_LEASED = RecordState.LEASED
_ACKED = RecordState.ACKED
_DEAD = RecordState.DEAD

TRANSITIONS = MappingProxyType(
    {
        (_AVAILABLE, Event.LEASE): Step(_LEASED, +1, "a member gets it"),
        (_AVAILABLE, Event.VANISH): Step(
            _ACKED, None, "the log has no record here, or none any more"
        ),
        (_LEASED, Event.ACCEPT): Step(_ACKED, 0, "the member has processed it"),
        (_LEASED, Event.RELEASE): Step(_AVAILABLE, 0, "the member gives it back", is_limited=True),
        (_LEASED, Event.REJECT): Step(_DEAD, 0, "the member says that nobody can process it"),
        (_LEASED, Event.GAP): Step(_ACKED, 0, "the member found no record here"),
        (_LEASED, Event.RENEW): Step(_LEASED, 0, "the member needs more time"),
        (_LEASED, Event.EXPIRE): Step(_AVAILABLE, 0, "the lease ran out", is_limited=True),
        # As in Kafka, the attempt counts: a member that dies of a record loses its session too.
        (_LEASED, Event.CLOSE): Step(
            _AVAILABLE, 0, "the member's session is over", is_limited=True
        ),
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


def after(before: Range, event: Event, attempts_max: int) -> Range:
    """What becomes of a range. A lease's owner is for the caller to fill in."""
    step = TRANSITIONS[before.state, event]
    attempts = 0 if step.attempts is None else before.attempts + step.attempts
    if step.is_limited and attempts >= attempts_max:
        return Range(before.first, before.last, _DEAD, attempts)
    return Range(before.first, before.last, step.after, attempts)
