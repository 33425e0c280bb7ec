"""What the target of a consumer group is made from, and what is written of it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from penstock.groups.assignors import AssignmentSpec, Assignor, MemberSubscription
from penstock.groups.catalog import KnownTopic, TopicCatalog
from penstock.groups.modern_group import ModernGroup
from penstock.groups.modern_records import (
    ModernRecord,
    Partitions,
    TargetEpochRecord,
    TargetRecord,
)
from penstock.model.ids import MemberId


class TargetWork(NamedTuple):
    """What a target is made from. Another epoch, or other members, make another one."""

    epoch: int
    assignor: Assignor
    spec: AssignmentSpec


def target_work(
    group: ModernGroup,
    assignors: Mapping[str, Assignor],
    catalog: TopicCatalog,
    member_id: MemberId | None = None,
) -> TargetWork:
    """Of the group as it is, for a member that is the first to ask for its epoch's target."""
    assignor = assignors.get(group.preferred_assignor(assignors, member_id) or "")
    if assignor is None:
        # Nobody asked for one, or it was taken out of the settings meanwhile.
        assignor = next(iter(assignors.values()))
    return TargetWork(group.epoch, assignor, _spec(group, catalog))


def target_records(
    group: ModernGroup, targets: Mapping[MemberId, Partitions]
) -> Iterator[ModernRecord]:
    """Only what is new in the target is written."""
    for member_id in group.profiles:
        given = targets.get(member_id, {})
        target = {topic_id: partitions for topic_id, partitions in given.items() if partitions}
        if target != group.targets.get(member_id):
            yield TargetRecord(group.group_id, member_id, target, kind=group.kind)
    yield TargetEpochRecord(group.group_id, group.epoch, kind=group.kind)


def known_topics(group: ModernGroup, catalog: TopicCatalog) -> Iterable[KnownTopic]:
    found = (catalog.find(name) for name in group.subscribed_topics())
    return (topic for topic in found if topic is not None)


def _spec(group: ModernGroup, catalog: TopicCatalog) -> AssignmentSpec:
    topics = {topic.name: topic for topic in known_topics(group, catalog)}
    # Members that read the same share what was found out for the first of them.
    topic_ids: dict[frozenset[str], frozenset[UUID]] = {}
    members = {}
    for member_id, profile in group.profiles.items():
        names = group.topics_of(profile)
        if names not in topic_ids:
            topic_ids[names] = frozenset(topics[name].topic_id for name in names if name in topics)
        members[member_id] = MemberSubscription(
            instance_id=profile.instance_id,
            rack_id=profile.rack_id,
            topic_ids=topic_ids[names],
            assigned=group.target(member_id),
        )
    return AssignmentSpec(
        members=members,
        partitions={topic.topic_id: topic.partitions for topic in topics.values()},
        is_homogeneous=group.is_homogeneous,
        assignable=group.assignable,
    )
