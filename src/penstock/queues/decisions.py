"""What a share coordinator decides about its queues: pure, on the state as it is now.

The leader of the data partition decides what happens to records. This only makes sure that nobody
else does: a change counts if it comes from the newest leader, from its newest opening, and right
after the change before it. All others are refused, however late or doubled they arrive.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.model.errors import Reason, Refused
from penstock.queues.commands import Change
from penstock.queues.layout import QueueKey
from penstock.queues.letters import LetterState
from penstock.queues.records import (
    UNRESOLVED,
    QueueChanged,
    QueueOpened,
    QueueRecord,
    QueueRemoved,
    QueueStored,
)
from penstock.queues.state import Queue, QueuesState


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A leader asks for the queue. It counts its openings, so that its own delayed calls are
    recognised too; a term has one leader, so the pair is never used twice."""

    key: QueueKey
    term: int
    opening: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A leader's next change."""

    key: QueueKey
    term: int
    opening: int
    state_epoch: int
    # One more than that of the change before it.
    version: int
    changes: tuple[Change, ...]
    # Whether the only change is all that there is from now on: after a log that got shorter.
    is_whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSummary:
    """What an operator sees of a queue."""

    key: QueueKey
    term: int
    state_epoch: int
    # -1 while nobody has polled it.
    start: int
    # Behind the start.
    done_count: int
    leased_count: int
    # Those that take memory until they are delivered, or until an earlier one is done.
    waiting_count: int
    dying_count: int = 0
    letters: LetterState = field(default_factory=LetterState)


def decide_open(state: QueuesState, command: Open) -> tuple[list[QueueRecord], QueueStored]:
    queue = state.get(command.key)
    if queue is None:
        # Only the group's coordinator makes queues: what it does not know, nobody would delete.
        detail = f"nobody who joined the group has asked for {command.key}"
        raise Refused(Reason.GROUP_ID_NOT_FOUND, detail)
    _check_term(queue, command.term)
    if command.term == queue.term and command.opening <= queue.opening:
        raise _fenced(f"opening {command.opening} of {command.key} is not the newest")
    record = QueueOpened(key=command.key, term=command.term, opening=command.opening)
    return [record], replace(queue.stored(), term=command.term, opening=command.opening)


def decide_write(state: QueuesState, command: Write) -> list[QueueRecord]:
    queue = state.get(command.key)
    if queue is None:
        raise _fenced(f"{command.key} is not stored")
    _check_write(queue, command)
    if command.is_whole:
        return [
            replace(queue.stored(), version=command.version, whole=change)
            for change in command.changes
        ]
    return [QueueChanged(key=command.key, version=command.version, changes=command.changes)]


def decide_initialize(state: QueuesState, starts: Mapping[QueueKey, int]) -> list[QueueRecord]:
    """Of those that are not there yet; a start that is known never changes by this."""
    records: list[QueueRecord] = []
    for key, start in starts.items():
        queue, whole = state.get(key), Change(start=start)
        if queue is None:
            records.append(QueueStored(key=key, whole=whole))
        elif queue.start == UNRESOLVED != start:
            epoch = queue.state_epoch + 1
            records.append(replace(queue.stored(), state_epoch=epoch, whole=whole))
    return records


def decide_alter(
    state: QueuesState, starts: Mapping[QueueKey, int]
) -> tuple[list[QueueRecord], dict[QueueKey, Refused | None]]:
    """Moves the starts of queues that nobody works on; what their leaders know is void."""
    records: list[QueueRecord] = []
    outcomes: dict[QueueKey, Refused | None] = {}
    for key, start in starts.items():
        queue, whole = state.get(key), Change(start=start)
        if queue is not None and queue.machine is not None:
            whole = queue.machine.moved(start)
        outcomes[key] = refused = _busy(queue)
        if refused is None:
            before = QueueStored(key=key, whole=whole) if queue is None else queue.stored()
            epoch = before.state_epoch + 1
            records.append(replace(before, state_epoch=epoch, whole=whole))
    return records, outcomes


def decide_removal(
    state: QueuesState, keys: Collection[QueueKey]
) -> tuple[list[QueueRecord], dict[QueueKey, Refused | None]]:
    outcomes = {key: _busy(state.get(key)) for key in keys}
    records: list[QueueRecord] = [
        QueueRemoved(key=key)
        for key, refused in outcomes.items()
        if refused is None and state.get(key) is not None
    ]
    return records, outcomes


def summarize(state: QueuesState, keys: Sequence[QueueKey]) -> list[QueueSummary]:
    """Those of the queues that are there."""
    found = (state.get(key) for key in keys)
    return [_summary(queue) for queue in found if queue is not None]


def _summary(queue: Queue) -> QueueSummary:
    machine = queue.machine
    return QueueSummary(
        key=queue.key,
        term=queue.term,
        state_epoch=queue.state_epoch,
        start=queue.start,
        done_count=0 if machine is None else machine.done_count,
        leased_count=0 if machine is None else machine.leased_count,
        waiting_count=0 if machine is None else machine.waiting_count + machine.delayed_count,
        dying_count=0 if machine is None else machine.dying_count,
        # What is planned is for the leader alone.
        letters=LetterState() if machine is None else replace(machine.letters, plan=None),
    )


def _check_term(queue: Queue, term: int) -> None:
    if term < queue.term:
        detail = f"{queue.key} is led in term {queue.term}, not {term}"
        raise Refused(Reason.FENCED_LEADER_EPOCH, detail)


def _check_write(queue: Queue, command: Write) -> None:
    _check_term(queue, command.term)
    found = (queue.term, queue.opening, queue.state_epoch, queue.version + 1)
    given = (command.term, command.opening, command.state_epoch, command.version)
    if found != given:
        names = "term, opening, state epoch and version"
        raise _fenced(f"a change of {queue.key} has {names} {given} where {found} are next")
    start = queue.start
    for change in command.changes:
        if not command.is_whole and not _fills(change, start):
            detail = f"a change of {queue.key} would move its start back"
            raise Refused(Reason.INVALID_REQUEST, detail)
        start = change.start
    if not command.changes:
        raise Refused(Reason.INVALID_REQUEST, f"a change of {queue.key} says nothing")


def _fills(change: Change, end: int) -> bool:
    """Whether it says something of every offset from its start up to the one before."""
    at = change.start
    for each in change.ranges:
        if at >= end:
            break
        if each.first <= at <= each.last:
            at = each.last + 1
    return at >= end


def _fenced(detail: str) -> Refused:
    return Refused(Reason.FENCED_STATE_EPOCH, detail)


def _busy(queue: Queue | None) -> Refused | None:
    if queue is None or not queue.has_leases:
        return None
    detail = f"records of {queue.key} are leased"
    return Refused(Reason.NON_EMPTY_GROUP, detail)
