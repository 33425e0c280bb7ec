"""What a group wants done after an event: its host answers, keeps the time, and stores."""

from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import NamedTuple, NewType, TypeAlias

from penstock.groups.commands import NO_MEMBER, JoinAnswer, SyncAnswer
from penstock.groups.records import GroupStored
from penstock.model.ids import MemberId

# Stands for one parked request; only the host knows what it is.
Ticket = NewType("Ticket", object)


class Timer(IntEnum):
    """What can take too long. Sessions and revocations are per member, the others per group.

    Integers are hashed fast, and every heartbeat moves a timer.
    """

    SESSION = auto()
    JOIN = auto()
    SYNC = auto()
    # Of a member that has to give partitions up (KIP-848).
    REVOCATION = auto()


class Answer(NamedTuple):
    ticket: Ticket
    answer: JoinAnswer | SyncAnswer


class SetTimer(NamedTuple):
    """Replaces a timer of the same kind and member; once it fires, `Group.expire` is called."""

    timer: Timer
    delay_ms: int
    member_id: MemberId = NO_MEMBER


class CancelTimer(NamedTuple):
    timer: Timer
    member_id: MemberId = NO_MEMBER


class Purpose(Enum):
    """Why a generation is stored, which says what follows once it is."""

    # The leader has assigned: the members may have their assignments.
    ASSIGNED = auto()
    # A static member came back under a new id: it may go on in the same generation.
    REPLACED = auto()
    # The last member is gone: nothing waits for it.
    EMPTIED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The host appends the record and tells `Group.stored` how that ended."""

    record: GroupStored
    purpose: Purpose
    # Of a static member that was replaced: who waits, and what its client can be told.
    member_id: MemberId = NO_MEMBER
    ticket: Ticket | None = None
    leader_before: MemberId | None = None
    can_skip_assignment: bool = False


Effect: TypeAlias = Answer | SetTimer | CancelTimer | Store
