"""The states of a group and every way from one to another."""

from enum import Enum
from types import MappingProxyType


class GroupState(Enum):
    """The values are the names that clients and tools know."""

    # No members. Also the state of groups that only commit offsets.
    EMPTY = "Empty"
    # Joins are parked until all known members are back or the time is up.
    PREPARING_REBALANCE = "PreparingRebalance"
    # The generation is fixed; syncs are parked until the leader's assignment is durable.
    COMPLETING_REBALANCE = "CompletingRebalance"
    # Every member can have its assignment.
    STABLE = "Stable"
    # The group was deleted, or this node coordinates it no longer.
    DEAD = "Dead"


_EMPTY = GroupState.EMPTY
_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE
_DEAD = GroupState.DEAD

TRANSITIONS = MappingProxyType(
    {
        (_EMPTY, _PREPARING): "the first member joins",
        (_EMPTY, _DEAD): "the group is deleted, expires or moves away",
        (_PREPARING, _COMPLETING): "all members are back, or the time to come back is over",
        (_PREPARING, _EMPTY): "the last member left or expired",
        (_PREPARING, _DEAD): "the group moves away",
        (_COMPLETING, _STABLE): "the leader's assignment is durable",
        (
            _COMPLETING,
            _PREPARING,
        ): "a member joins again or with other metadata, leaves, expires or "
        "does not sync in time, or the assignment could not be stored",
        (_COMPLETING, _DEAD): "the group moves away",
        (_STABLE, _PREPARING): "a member joins, leaves, expires, changes its metadata or did not "
        "sync in time, or the leader asks for it by joining again",
        (_STABLE, _DEAD): "the group moves away",
    }
)

CAN_REBALANCE = frozenset(before for before, after in TRANSITIONS if after is _PREPARING)
