"""What may be asked of a consumer or share group besides its heartbeats, and what it answers."""

from collections.abc import Sequence
from uuid import UUID

from penstock.groups.catalog import TopicCatalog
from penstock.groups.commands import (
    CommitOffsets,
    ConsumerDescription,
    ConsumerMemberDescription,
    GroupDescription,
)
from penstock.groups.group import Group
from penstock.groups.modern_group import ModernGroup, ModernMember
from penstock.groups.modern_records import CurrentAssignment, GroupKind, Partitions
from penstock.groups.records import GroupMetadata
from penstock.groups.transitions import GroupState
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId


def check_commit(
    group: ModernGroup, command: CommitOffsets, catalog: TopicCatalog
) -> list[Reason | None]:
    """For each offset why it may not be committed now, or None; raises what is true of all.

    A member that has not heard yet of its newest epoch may commit what was its own in the epoch
    that it names, and still is (KIP-1251); as in Kafka, one partition that is not refuses them all.
    One that has may commit whatever is not another's: Kafka allows that too, and so lets a late
    commit of who had a partition before take back a newer one.
    """
    if group.kind is not GroupKind.CONSUMER:
        detail = f"{group.group_id} is not a consumer group"
        raise Refused(Reason.GROUP_ID_NOT_FOUND, detail)
    epoch = command.generation
    if epoch < 0 and not group.profiles:
        return [None] * len(command.offsets)
    member = _member(group, command.member_id)
    stale = _stale_reason(member)
    if not command.knows_member_epochs and member.profile.classic is None:
        detail = "members of a consumer group commit with OffsetCommit version 9 or above"
        raise Refused(Reason.UNSUPPORTED_VERSION, detail)
    if epoch > member.current.epoch:
        raise _stale(member, epoch)
    is_late = epoch < member.current.epoch
    outcomes: list[Reason | None] = []
    for offset in command.offsets:
        topic = catalog.find(offset.topic)
        is_allowed = topic is not None and (
            _is_own(member, topic.topic_id, offset.partition, epoch)
            if is_late
            else group.is_free(topic.topic_id, offset.partition, member.member_id)
        )
        if is_late and not is_allowed:
            raise _stale(member, epoch)
        outcomes.append(None if is_allowed else stale)
    return outcomes


def check_fetch(group: ModernGroup, member_id: MemberId | None, epoch: int) -> None:
    """Raises unless these are the credentials of a member, or none at all."""
    if member_id is None and epoch < 0:
        return
    member = _member(group, member_id or MemberId(""))
    if epoch != member.current.epoch:
        raise _stale(member, epoch)


def _member(group: ModernGroup, member_id: MemberId) -> ModernMember:
    member = group.member(member_id)
    if member is None:
        detail = f"{member_id!r} is not a member of group {group.group_id}"
        raise Refused(Reason.UNKNOWN_MEMBER_ID, detail)
    return member


def _stale(member: ModernMember, epoch: int) -> Refused:
    detail = f"{member.member_id} is at epoch {member.current.epoch}, not at {epoch}"
    return Refused(_stale_reason(member), detail)


def _stale_reason(member: ModernMember) -> Reason:
    """In the words of the protocol that the member speaks."""
    is_classic = member.profile.classic is not None
    return Reason.ILLEGAL_GENERATION if is_classic else Reason.STALE_MEMBER_EPOCH


def _is_own(member: ModernMember, topic_id: UUID, partition: int, epoch: int) -> bool:
    """Whether a partition was the member's in this epoch, and has been since."""
    for topics in (member.current.assigned, member.current.revoking):
        since = topics.get(topic_id, {}).get(partition)
        if since is not None:
            return epoch >= since
    return False


def summarize(group: ModernGroup) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        state=group.state.value,
        # The protocol types of both kinds are called as the kinds.
        protocol_type=group.kind.value,
        protocol="",
        group_type=group.kind.value,
    )


def summarize_classic(
    group_id: GroupId, group: Group | None, metadata: GroupMetadata | None
) -> GroupDescription:
    """Of a classic group, or of one that nobody is in, as far as it is stored."""
    if group is not None:
        state, protocol_type = group.state, group.protocol_type
    else:
        state, protocol_type = GroupState.EMPTY, metadata.protocol_type if metadata else ""
    return GroupDescription(
        group_id=group_id, state=state.value, protocol_type=protocol_type, protocol=""
    )


def describe(group: ModernGroup, assignors: Sequence[str]) -> ConsumerDescription:
    """`assignors` are those of the settings; the first one is for members that ask for none."""
    return ConsumerDescription(
        group_id=group.group_id,
        state=group.state.value,
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        assignor=group.preferred_assignor(assignors) or assignors[0],
        members=tuple(_describe_member(group, member) for member in group.members()),
    )


def _describe_member(group: ModernGroup, member: ModernMember) -> ConsumerMemberDescription:
    profile = member.profile
    return ConsumerMemberDescription(
        member_id=member.member_id,
        member_epoch=member.current.epoch,
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        topics=profile.topics,
        expression=profile.expression,
        is_classic=profile.classic is not None,
        assignment=held_partitions(member.current),
        target=group.target(member.member_id),
    )


def held_partitions(current: CurrentAssignment | None) -> Partitions:
    """What is a member's own, with what it still has to give up."""
    held: dict[UUID, frozenset[int]] = {}
    for topics in () if current is None else (current.assigned, current.revoking):
        for topic_id, epochs in topics.items():
            held[topic_id] = held.get(topic_id, frozenset()) | epochs.keys()
    return held
