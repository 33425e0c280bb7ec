"""What members ask of their group and what they are told, in the model's words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from penstock.groups.classic_member import MemberProtocol as MemberProtocol
from penstock.groups.modern_records import Partitions
from penstock.model.errors import Reason
from penstock.model.ids import GroupId, MemberId, TopicName

NO_MEMBER = MemberId("")
NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    group_id: GroupId
    # Empty in the first join of a member that does not know its id yet.
    member_id: MemberId = NO_MEMBER
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    reason: str = ""
    # KIP-394: the client can be sent away with its new id, and joins again with it.
    takes_member_id: bool = True
    # KIP-814: the client knows that a leader may be told not to assign.
    can_skip_assignment: bool = True


class JoinedMember(NamedTuple):
    member_id: MemberId
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    refused: Reason | None = None
    member_id: MemberId = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: MemberId = NO_MEMBER
    skip_assignment: bool = False
    # All members for the leader, none for the others.
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    group_id: GroupId
    member_id: MemberId
    instance_id: str | None = None
    generation: int
    # None from clients that do not say.
    protocol_type: str | None = None
    protocol: str | None = None
    # From the leader only.
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    refused: Reason | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Departure(NamedTuple):
    """A member that leaves, or that an operator removes by its instance id."""

    member_id: MemberId
    instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """What a member of a group says whose partitions the broker assigns (KIP-848).

    None where nothing has changed since its last heartbeat.
    """

    group_id: GroupId
    member_id: MemberId = NO_MEMBER
    # Its own, or 0 to join, -1 to leave, -2 to leave and come back as the same instance.
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] | None = None
    expression: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None

    @property
    def is_full(self) -> bool:
        """Whether it says all that it can: the member wants to be told all, too."""
        subscribes = self.topics is not None or self.expression is not None
        return self.rebalance_timeout_ms is not None and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerAnswer:
    member_id: MemberId
    member_epoch: int
    heartbeat_interval_ms: int = 0
    # What the member may use from now on, and nothing else; None when that has not changed.
    assignment: Partitions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """What a member of a share group says (KIP-932); None where nothing has changed."""

    group_id: GroupId
    member_id: MemberId
    # Its own, or 0 to join, -1 to leave.
    member_epoch: int
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] | None = None


# Members of both kinds of groups are told the same.
ShareAnswer: TypeAlias = ConsumerAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberDescription:
    member_id: MemberId
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: frozenset[str]
    expression: str | None
    # Whether it speaks the classic protocol.
    is_classic: bool
    # What is its own, with what it still has to give up, and what it shall have.
    assignment: Partitions
    target: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerDescription:
    group_id: GroupId
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...] = ()


# A share group has no instances, expressions or partitions to give up.
ShareDescription: TypeAlias = ConsumerDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    member_id: MemberId
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: GroupId
    state: str
    protocol_type: str
    protocol: str
    # Which protocol its members speak: "classic", "consumer" or "share".
    group_type: str = "classic"
    members: tuple[MemberDescription, ...] = ()


class OffsetToCommit(NamedTuple):
    topic: TopicName
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    group_id: GroupId
    # Empty and -1 from those who use no membership: an administrator, an own assignment.
    member_id: MemberId = NO_MEMBER
    instance_id: str | None = None
    generation: int = NO_GENERATION
    # Set by old clients only; None leaves it to the node's setting.
    retention_ms: int | None = None
    offsets: tuple[OffsetToCommit, ...]
    # What a member of a group that does not exist is told; older clients know only the generation.
    unknown_group: Reason = Reason.GROUP_ID_NOT_FOUND
    # Whether the generation may be a member epoch (KIP-848).
    knows_member_epochs: bool = True
