"""How a member gets from what it has to what it shall have, one heartbeat at a time.

Every way from one state to another (KIP-848; Kafka's rules):

- STABLE, and there is a newer target:
    -> UNREVOKED_PARTITIONS   it has partitions that are not in its target: it keeps its epoch
    -> UNRELEASED_PARTITIONS  it gets the new epoch and what is free; others have the rest
    -> STABLE                 it gets the new epoch and all of its target
- UNREVOKED_PARTITIONS, until the member says that it owns none of them any more:
    -> the same three, towards the newest target
- UNRELEASED_PARTITIONS, with every heartbeat:
    -> the same three, towards the newest target
- UNKNOWN, stored by a later version: the member has to own nothing, then as if it were new.

A partition changes hands only through a member's own report that it has given it up, so that it
never has two owners.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from penstock.groups.modern_records import (
    CurrentAssignment,
    MemberState,
    PartitionEpochs,
    Partitions,
)
from penstock.model.errors import Reason, Refused

# Whether the member may have this partition of this topic at once.
IsFree = Callable[[UUID, int], bool]


class Goal(NamedTuple):
    """What a member shall come to. Topics that it does not read any more are not in its target."""

    epoch: int
    target: Partitions
    is_subscribed: Callable[[UUID], bool]
    is_free: IsFree


def reconcile(
    current: CurrentAssignment, goal: Goal, owned: Partitions | None, *, is_changed: bool
) -> CurrentAssignment:
    """Where the member is after a heartbeat in which it says that it owns these partitions.

    None says nothing about that. `is_changed` when the member reads other topics from now on.
    """
    if current.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise Refused(Reason.FENCED_MEMBER_EPOCH, "the member has to join again")
        return _advance(current, goal, owned)
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, current.revoking):
            return _give_up_unread(current, goal) if is_changed else current
        return _advance(current, goal, owned)
    if current.state is MemberState.STABLE and current.epoch == goal.epoch:
        return current
    return _advance(current, goal, owned)


def _advance(current: CurrentAssignment, goal: Goal, owned: Partitions | None) -> CurrentAssignment:
    kept: dict[UUID, Mapping[int, int]] = {}
    revoking: dict[UUID, Mapping[int, int]] = {}
    added: dict[UUID, dict[int, int]] = {}
    has_unreleased = False
    for topic_id in {**goal.target, **current.assigned}:
        target = goal.target.get(topic_id, frozenset())
        if not goal.is_subscribed(topic_id):
            target = frozenset()
        assigned = current.assigned.get(topic_id, {})
        _put(kept, topic_id, {p: epoch for p, epoch in assigned.items() if p in target})
        _put(revoking, topic_id, {p: epoch for p, epoch in assigned.items() if p not in target})
        missing = sorted(target - assigned.keys())
        free = [partition for partition in missing if goal.is_free(topic_id, partition)]
        has_unreleased |= len(free) < len(missing)
        _put(added, topic_id, dict.fromkeys(free, goal.epoch))
    if revoking and _owns_any(owned, revoking):
        return CurrentAssignment(
            epoch=current.epoch,
            previous_epoch=current.epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            revoking=revoking,
        )
    for topic_id, epochs in added.items():
        kept[topic_id] = {**kept.get(topic_id, {}), **epochs}
    return CurrentAssignment(
        epoch=goal.epoch,
        previous_epoch=current.epoch,
        state=MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE,
        assigned=kept,
    )


def _give_up_unread(current: CurrentAssignment, goal: Goal) -> CurrentAssignment:
    """Also what the member does not read any more, while it still gives up something else."""
    unread = {t: epochs for t, epochs in current.assigned.items() if not goal.is_subscribed(t)}
    if not unread:
        return current
    revoking = dict(current.revoking)
    for topic_id, epochs in unread.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **epochs}
    return CurrentAssignment(
        epoch=current.epoch,
        previous_epoch=current.epoch,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned={t: epochs for t, epochs in current.assigned.items() if t not in unread},
        revoking=revoking,
    )


def _owns_any(owned: Partitions | None, revoking: PartitionEpochs) -> bool:
    """A member that does not say what it owns still owns everything."""
    if owned is None:
        return True
    nothing: Mapping[int, int] = {}
    return any(
        partition in revoking.get(topic_id, nothing)
        for topic_id, partitions in owned.items()
        for partition in partitions
    )


def is_subset(owned: Partitions | None, assigned: PartitionEpochs) -> bool:
    """Whether a member owns nothing but what is its own by now."""
    if owned is None:
        return False
    return all(
        topic_id in assigned and partitions <= assigned[topic_id].keys()
        for topic_id, partitions in owned.items()
    )


def _put(
    topics: dict[UUID, dict[int, int]] | dict[UUID, Mapping[int, int]],
    topic_id: UUID,
    epochs: dict[int, int],
) -> None:
    if epochs:
        topics[topic_id] = epochs
