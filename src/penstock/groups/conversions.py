"""How a group with members moves from the classic protocol to the new one (KIP-848), and back.

A classic group becomes a consumer group with the first member of the new protocol. Its members stay
as they are, in their generation as the epoch, with what they were assigned. It becomes a classic
one again when the last member of the new protocol is gone, in the group's epoch as the generation,
and its members join again.

The rules are Kafka's (`group.consumer.migration.policy`). Ours differ where Kafka could give a
partition to two members, or leave it to none, and in one more case:

- A member whose assignment was reset, because a rebalance began amid another one, still uses what
  it named in its last join. Kafka takes that for free.
- The group begins another epoch also when the first member of the new protocol is an instance that
  had the classic one: the generation may be one in which not everything is assigned yet. In Kafka
  that would stay so.
- Data of an assignor beside a member's partitions would be lost, so Kafka refuses to move such a
  group. librdkafka's cooperative-sticky assignor always adds some, which its members don't need: a
  group with one of the clients' own assignors is moved.
- In the classic group that is made, members have what they may be using. In Kafka they have their
  targets, and another member of the new protocol that comes at once could get what is in use.
- A member that was behind the group's epoch is told to join again, and may commit until then. In
  Kafka it would lose its partitions, since the generation is another one.
- A classic group that is made is stored without a leader. A coordinator that loads it begins a
  rebalance, and so does one whose topics change. In Kafka it would be stable, without anybody for
  the partitions of the member that left, or for new ones.
- When the last member of the new protocol is replaced by a classic one of the same instance, a
  group that is not settled yet rebalances. In Kafka members would get their targets at once.
"""

from collections.abc import Collection, Iterator, Mapping
from uuid import UUID

from penstock.groups.catalog import TopicCatalog
from penstock.groups.classic_member import ClassicMember
from penstock.groups.consumer_decisions import Surroundings
from penstock.groups.consumer_reads import held_partitions
from penstock.groups.group import Group
from penstock.groups.members import Member
from penstock.groups.modern_group import ModernGroup, ModernMember, ModernState
from penstock.groups.modern_records import (
    CurrentAssignment,
    CurrentRecord,
    EpochRecord,
    GroupEpoch,
    MemberProfile,
    MemberRecord,
    Partitions,
    TargetEpochRecord,
    TargetRecord,
)
from penstock.groups.settings import GroupSettings
from penstock.groups.subscriptions import (
    CONSUMER_PROTOCOL_TYPE,
    NamedPartitions,
    Subscription,
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
)
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import MemberId

Owners = dict[tuple[UUID, int], MemberId]
NO_HASH = 0
# Assignors that come with the clients. Their members need nothing but their partitions.
STOCK_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})


# To the new protocol


def upgraded(group: Group, around: Surroundings) -> ModernGroup:
    """The consumer group that a classic one becomes. Raises Refused if it must not or can't."""
    _check_upgrade(group, around)
    subscriptions = {member.member_id: _subscription(group, member) for member in group.members}
    modern = ModernGroup(group.group_id)
    held = _held(group, subscriptions, around.catalog)
    for member in group.members:
        _add(modern, group, member, subscriptions[member.member_id], held[member.member_id])
    # As if topics had changed since then: the first heartbeat begins another epoch in any case.
    modern.apply(EpochRecord(group.group_id, GroupEpoch(group.generation, NO_HASH)))
    modern.apply(TargetEpochRecord(group.group_id, group.generation))
    return modern


def _check_upgrade(group: Group, around: Surroundings) -> None:
    if not around.migration.allows_upgrade:
        raise _refused(group, "groups may not be moved to the new protocol")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _refused(group, f"its members speak {group.protocol_type!r} to each other")
    if len(group.members) > around.members_max:
        raise _refused(group, f"it has more than {around.members_max} members")


def _refused(group: Group, why: str) -> Refused:
    detail = f"group {group.group_id} can't become a consumer group: {why}"
    return Refused(Reason.GROUP_ID_NOT_FOUND, detail)


def _subscription(group: Group, member: Member) -> Subscription:
    # Before the first generation no protocol is chosen; all of them say the same.
    metadata = member.metadata(group.protocol) or member.protocols[0].metadata
    subscription = read_subscription(metadata)
    if subscription is None:
        raise _refused(group, f"what {member.member_id} subscribes to can't be read")
    return subscription


def _held(
    group: Group, subscriptions: Mapping[MemberId, Subscription], catalog: TopicCatalog
) -> dict[MemberId, dict[UUID, frozenset[int]]]:
    """What each member may be using. What was assigned counts most, then the newest claim."""
    owners: Owners = {}
    is_stock = group.protocol in STOCK_ASSIGNORS
    for member in group.members:
        assignment = read_assignment(member.assignment)
        if assignment is None or (assignment.has_user_data and not is_stock):
            raise _refused(group, f"what {member.member_id} was assigned can't be kept")
        for place in _places(assignment.partitions, catalog):
            owners.setdefault(place, member.member_id)
    unassigned = [member for member in group.members if not member.assignment]
    unassigned.sort(key=lambda each: -subscriptions[each.member_id].generation)
    for member in unassigned:
        for place in _places(subscriptions[member.member_id].owned, catalog):
            owners.setdefault(place, member.member_id)
    held: dict[MemberId, dict[UUID, frozenset[int]]] = {each: {} for each in subscriptions}
    for (topic_id, partition), member_id in owners.items():
        own = held[member_id]
        own[topic_id] = own.get(topic_id, frozenset()) | {partition}
    return held


def _places(topics: NamedPartitions, catalog: TopicCatalog) -> Iterator[tuple[UUID, int]]:
    for name, partitions in topics.items():
        topic = catalog.find(name)
        if topic is not None:
            yield from ((topic.topic_id, partition) for partition in partitions)


def _add(
    modern: ModernGroup,
    group: Group,
    member: Member,
    subscription: Subscription,
    held: Partitions,
) -> None:
    generation = group.generation if member.own_generation is None else member.own_generation
    profile = MemberProfile(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=subscription.topics,
        expression="",
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
    )
    current = CurrentAssignment(
        epoch=generation,
        previous_epoch=generation,
        assigned={topic_id: dict.fromkeys(sorted(ps), generation) for topic_id, ps in held.items()},
    )
    modern.apply(MemberRecord(group.group_id, member.member_id, profile))
    modern.apply(TargetRecord(group.group_id, member.member_id, held))
    modern.apply(CurrentRecord(group.group_id, member.member_id, current))


# Back to the classic protocol


def is_classic_after(
    group: ModernGroup, leavers: Collection[MemberId], around: Surroundings, *, stays: int = 0
) -> bool:
    """Whether it has to become a classic group once these members are gone, of whom some stay as
    members of the classic protocol."""
    left = len(group.profiles) - len(leavers)
    new = sum(group.profiles[member_id].classic is None for member_id in leavers)
    is_last = group.classic_count - (len(leavers) - new) == left
    return (
        is_last
        and left + stays > 0
        and around.migration.allows_downgrade
        and left + stays <= around.classic_members_max
    )


def downgraded(
    group: ModernGroup,
    leavers: Collection[MemberId],
    catalog: TopicCatalog,
    *,
    settings: GroupSettings,
    clock: Clock,
) -> Group:
    """The classic group, in a generation in which everybody has what it may be using."""
    members = [
        _classic(member, member.profile.classic)
        for member in group.members()
        if member.member_id not in leavers and member.profile.classic is not None
    ]
    classic = Group(group.group_id, settings=settings, clock=clock)
    classic.adopt(members, generation=group.epoch, protocol_type=CONSUMER_PROTOCOL_TYPE)
    for member in members:
        version = read_version(member.metadata(classic.protocol))
        held = _by_name(held_partitions(group.currents.get(member.member_id)), catalog)
        member.assignment = write_assignment(version, held)
    return classic


def is_settled(group: ModernGroup) -> bool:
    """Whether everybody has its target, so that a classic group needs no rebalance."""
    return group.state is ModernState.STABLE


def _classic(member: ModernMember, said: ClassicMember) -> Member:
    profile = member.profile
    return Member(
        member_id=member.member_id,
        instance_id=profile.instance_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        rebalance_timeout_ms=profile.rebalance_timeout_ms,
        session_timeout_ms=said.session_timeout_ms,
        protocols=said.protocols,
        own_generation=member.current.epoch,
    )


def _by_name(topics: Partitions, catalog: TopicCatalog) -> dict[str, frozenset[int]]:
    found = ((catalog.find_by_id(topic_id), each) for topic_id, each in topics.items())
    return {topic.name: partitions for topic, partitions in found if topic is not None}
