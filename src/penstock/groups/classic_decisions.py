"""Decisions for members of the classic protocol inside a consumer group (KIP-848).

Such a member joins, syncs and heartbeats as it always did, with its epoch as the generation. The
group assigns for it, so nobody leads. A heartbeat tells it to join again whenever it has something
to get or to give up. What it owns is what it says when it joins: one that gives up everything first
says nothing, one that keeps its partitions names them.

The rules are Kafka's, with one difference: where nobody speaks the new protocol, because groups may
not be moved back, a heartbeat also tells of an epoch that has no target yet. In Kafka nobody would
make one.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from penstock.groups.catalog import TopicCatalog
from penstock.groups.classic_member import ClassicMember
from penstock.groups.commands import NO_MEMBER, Departure, Join, JoinAnswer, Sync, SyncAnswer
from penstock.groups.consumer_decisions import (
    Draft,
    Surroundings,
    check_instance,
    known_member,
    progress,
    reconciled,
    replaced_member,
    update_profile,
)
from penstock.groups.conversions import is_classic_after
from penstock.groups.modern_group import ModernGroup, ModernMember
from penstock.groups.modern_records import (
    CurrentAssignment,
    MemberProfile,
    MemberState,
    ModernRecord,
    Partitions,
)
from penstock.groups.settings import MigrationPolicy
from penstock.groups.subscriptions import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    read_subscription,
    read_version,
    write_assignment,
)
from penstock.model.errors import Reason, Refused
from penstock.model.ids import MemberId


class JoinDecision(NamedTuple):
    records: list[ModernRecord]
    answer: JoinAnswer
    # None for one that has only got its id.
    after: ModernMember | None = None
    # The group as it is then, if it has to become a classic one: the last member of the new
    # protocol came back, as the same instance, with the classic one.
    classic: ModernGroup | None = None
    is_target_due: bool = False


def decide_join(
    group: ModernGroup, command: Join, new_member_id: MemberId, around: Surroundings
) -> JoinDecision:
    """`new_member_id` is for a member that has none yet. Raises Refused."""
    member_id = command.member_id or new_member_id
    _check_join(group, command, member_id, around)
    is_unknown = command.member_id == NO_MEMBER
    if is_unknown and command.takes_member_id and command.instance_id is None:
        refused = Reason.MEMBER_ID_REQUIRED
        return JoinDecision([], JoinAnswer(refused=refused, member_id=member_id))
    subscription = read_subscription(command.protocols[0].metadata)
    if subscription is None:
        raise Refused(Reason.UNKNOWN_SERVER_ERROR, f"{member_id} says nothing that can be read")
    draft = Draft(group)
    member = _admitted(draft, command, member_id)
    profile = _updated(member.profile, command, subscription)
    owned = _by_id(subscription, around.catalog)
    static_id = group.static_id(command.instance_id)
    if static_id is not None and _ends_the_new_protocol(group, static_id, around):
        return _joined_last(draft, member, profile, owned, around)
    after = progress(draft, member, profile, owned, around)
    joined = _joined(after)
    return JoinDecision(draft.records, joined, after, is_target_due=draft.is_target_due)


def _check_join(
    group: ModernGroup, command: Join, member_id: MemberId, around: Surroundings
) -> None:
    if around.migration is MigrationPolicy.DISABLED:
        detail = f"consumer group {group.group_id} takes no members of the classic protocol"
        raise Refused(Reason.INCONSISTENT_GROUP_PROTOCOL, detail)
    members = len(group.profiles)
    if members >= around.members_max and member_id not in group.profiles:
        detail = f"group {group.group_id} has {members} members, and may not have more"
        raise Refused(Reason.GROUP_MAX_SIZE_REACHED, detail)
    names = [name for name, _ in command.protocols]
    is_consumer = command.protocol_type == CONSUMER_PROTOCOL_TYPE
    if not is_consumer or not group.supports_any(names):
        detail = f"the protocols of {member_id} are not those of group {group.group_id}"
        raise Refused(Reason.INCONSISTENT_GROUP_PROTOCOL, detail)


def _admitted(draft: Draft, command: Join, member_id: MemberId) -> ModernMember:
    group, instance_id = draft.group, command.instance_id
    existing = group.member(group.static_id(instance_id) or member_id)
    if instance_id is not None and command.member_id != NO_MEMBER:
        return check_instance(group, member_id, instance_id)
    if existing is None:
        return ModernMember(member_id, MemberProfile(), CurrentAssignment())
    if instance_id is not None:
        return replaced_member(draft, existing, member_id)
    return existing


def _updated(profile: MemberProfile, command: Join, subscription: Subscription) -> MemberProfile:
    return replace(
        profile,
        instance_id=command.instance_id or profile.instance_id,
        rack_id=subscription.rack_id or profile.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topics=subscription.topics,
        expression="",
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        classic=ClassicMember(command.session_timeout_ms, command.protocols),
    )


def _by_id(subscription: Subscription, catalog: TopicCatalog) -> Partitions:
    owned: dict[UUID, frozenset[int]] = {}
    for name, partitions in subscription.owned.items():
        topic = catalog.find(name)
        if topic is not None:
            owned[topic.topic_id] = partitions
    return owned


def _ends_the_new_protocol(group: ModernGroup, static_id: MemberId, around: Surroundings) -> bool:
    is_new = group.profiles[static_id].classic is None
    return is_new and is_classic_after(group, {static_id}, around, stays=1)


def _joined_last(
    draft: Draft,
    member: ModernMember,
    profile: MemberProfile,
    owned: Partitions,
    around: Surroundings,
) -> JoinDecision:
    """The group becomes a classic one, so no target is made for another epoch."""
    change = update_profile(draft, member, profile, around)
    after = ModernMember(member.member_id, profile, member.current)
    if draft.group.target_epoch >= draft.group.epoch:
        after = reconciled(draft, member.member_id, owned, around, is_changed=change.is_any)
    return JoinDecision([], _joined(after), after, draft.group)


def _joined(member: ModernMember) -> JoinAnswer:
    assert member.profile.classic is not None
    return JoinAnswer(
        member_id=member.member_id,
        generation=member.current.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol=member.profile.classic.protocols[0].name,
    )


# The generation's assignment


def synced(group: ModernGroup, command: Sync, catalog: TopicCatalog) -> SyncAnswer:
    """What the member may use. Raises Refused, with REBALANCE_IN_PROGRESS if it has to join."""
    member = classic_member(group, command.member_id, command.instance_id, command.generation)
    classic = member.profile.classic
    assert classic is not None
    for said, known in (
        (command.protocol_type, CONSUMER_PROTOCOL_TYPE),
        (command.protocol, classic.protocols[0].name),
    ):
        if said is not None and said != known:
            raise Refused(Reason.INCONSISTENT_GROUP_PROTOCOL)
    is_giving_up = member.current.state is MemberState.UNREVOKED_PARTITIONS
    if group.target_epoch > member.current.epoch and not is_giving_up:
        raise Refused(Reason.REBALANCE_IN_PROGRESS)
    partitions: dict[str, Iterable[int]] = {}
    for topic_id, epochs in member.current.assigned.items():
        topic = catalog.find_by_id(topic_id)
        if topic is not None:
            partitions[topic.name] = epochs
    return SyncAnswer(
        protocol_type=command.protocol_type,
        protocol=command.protocol,
        assignment=write_assignment(read_version(classic.metadata), partitions),
    )


def classic_member(
    group: ModernGroup, member_id: MemberId, instance_id: str | None, generation: int
) -> ModernMember:
    """Raises Refused unless it is a member that speaks the classic protocol, in its epoch."""
    if instance_id is None:
        member = known_member(group, member_id)
    else:
        member = check_instance(group, member_id, instance_id)
    if member.profile.classic is None:
        detail = f"{member_id} does not speak the classic protocol"
        raise Refused(Reason.UNKNOWN_MEMBER_ID, detail)
    if member.current.epoch != generation:
        detail = f"{member_id} is at epoch {member.current.epoch}, not at {generation}"
        raise Refused(Reason.ILLEGAL_GENERATION, detail)
    return member


def has_to_join(group: ModernGroup, member: ModernMember, *, is_stale: bool) -> bool:
    """Whether it has something to give up, or can get something, by joining again."""
    current = member.current
    if current.epoch < group.target_epoch or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if current.state is MemberState.UNRELEASED_PARTITIONS:
        return not _waits_for_others(group, member)
    is_behind = group.epoch > group.target_epoch or is_stale
    return is_behind and group.classic_count == len(group.profiles)


def _waits_for_others(group: ModernGroup, member: ModernMember) -> bool:
    for topic_id, partitions in group.target(member.member_id).items():
        for partition in partitions - member.current.assigned.get(topic_id, {}).keys():
            if not group.is_free(topic_id, partition, member.member_id):
                return True
    return False


# Leaving


def leaving(
    group: ModernGroup, departures: Iterable[Departure]
) -> tuple[list[Reason | None], set[MemberId]]:
    """For each who leaves why it can't, or None; and the ids of those who do. Also members of the
    new protocol may be removed in this way."""
    outcomes: list[Reason | None] = []
    leavers: set[MemberId] = set()
    for member_id, instance_id, _ in departures:
        try:
            leavers.add(_leaver(group, member_id, instance_id))
        except Refused as refused:
            outcomes.append(refused.reason)
        else:
            outcomes.append(None)
    return outcomes, leavers


def _leaver(group: ModernGroup, member_id: MemberId, instance_id: str | None) -> MemberId:
    if instance_id is None:
        return known_member(group, member_id).member_id
    if member_id == NO_MEMBER:
        # An operator removes a static member without knowing its present id.
        member_id = group.static_id(instance_id) or NO_MEMBER
    return check_instance(group, member_id, instance_id).member_id
