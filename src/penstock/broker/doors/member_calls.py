"""The calls of doors that are members of a consumer group for a client (KIP-848)."""

from uuid import UUID

from penstock.broker.doors.calls import Answer, Call, Done, GroupOffset, declare

# Partitions by topic.
Owned = list[tuple[UUID, list[int]]]


class Membership(Answer):
    member_epoch: int
    heartbeat_interval_ms: int
    # What the member may use from now on, and nothing else; None when that has not changed.
    assignment: Owned | None = None


class BeatAsMember(Call[Membership]):
    """The member joins (epoch 0), lives, or leaves (-1). None where nothing has changed."""

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str = ""
    rebalance_timeout_ms: int | None = None
    topics: list[str] | None = None
    owned: Owned | None = None


class CommitAsMember(Call[Done]):
    group_id: str
    member_id: str
    member_epoch: int
    offsets: list[GroupOffset]


declare(dict(globals()))
