"""What follows from the heartbeats of a share group (KIP-932): records, and an answer.

Pure, as the decisions for consumer groups are, and made of the same parts. The rules are Kafka's,
but for these:

- a target is assigned as soon as the group's epoch has grown, without a pause in between;
- partitions that a topic got after the group had met it are read from their beginning, whatever
  `share.auto.offset.reset` says: with "latest", Kafka skips what was written to them before the
  group has noticed them.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from uuid import UUID

from penstock.groups.catalog import TopicCatalog
from penstock.groups.commands import ConsumerAnswer, ShareHeartbeat
from penstock.groups.consumer_decisions import (
    JOIN_EPOCH,
    Decision,
    Draft,
    Surroundings,
    assign,
    check_size,
    decide_removal,
    has_missed_answer,
    known_member,
    renew_epoch,
    with_news,
)
from penstock.groups.modern_group import ModernMember
from penstock.groups.modern_records import (
    CurrentAssignment,
    CurrentRecord,
    KeptQueues,
    MemberProfile,
    MemberRecord,
    NamedPartitions,
    NamedTopics,
    QueuesRecord,
)
from penstock.groups.share_group import ShareGroup
from penstock.groups.share_records import in_epoch
from penstock.groups.targets import known_topics
from penstock.model.errors import Reason, Refused

# Where the queue of a partition starts: where the group's setting says, or at its beginning.
BY_SETTING = -1
AT_BEGINNING = 0


def decide_heartbeat(group: ShareGroup, command: ShareHeartbeat, around: Surroundings) -> Decision:
    """Raises Refused for a member that can't be in the group. A member that only says that it lives
    costs the same in a group of any size, and writes nothing."""
    draft = Draft(group)
    member = _admitted(group, command, around)
    has_unassigned = around.is_stale and _has_unassigned(group)
    is_changed = _update_profile(draft, member, command)
    has_news = is_changed or around.is_stale
    if has_news:
        renew_epoch(draft, around, is_bumped=is_changed or has_unassigned)
    if draft.group.epoch > draft.group.target_epoch:
        assign(draft, member.member_id, around)
    after = _moved(draft, member, around.catalog)
    has_missed = has_missed_answer(member.current, command.member_epoch)
    tells_all = has_missed or command.topics is not None
    is_other = _parts(after.current) != _parts(member.current)
    answer = ConsumerAnswer(
        member_id=member.member_id,
        member_epoch=after.current.epoch,
        heartbeat_interval_ms=around.heartbeat_interval_ms,
        assignment=_parts(after.current) if tells_all or is_other else None,
    )
    assert isinstance(draft.group, ShareGroup)
    lacks_queues = has_news and bool(missing_queues(draft.group, around.catalog))
    return Decision(
        draft.records,
        answer,
        member.current,
        after,
        is_target_due=draft.is_target_due,
        lacks_queues=lacks_queues,
    )


def decide_leave(group: ShareGroup, command: ShareHeartbeat, around: Surroundings) -> Decision:
    member = known_member(group, command.member_id)
    answer = ConsumerAnswer(member_id=member.member_id, member_epoch=command.member_epoch)
    return Decision(decide_removal(group, [member.member_id], around), answer, member.current)


def _admitted(group: ShareGroup, command: ShareHeartbeat, around: Surroundings) -> ModernMember:
    if command.member_id not in group.profiles:
        check_size(group, around.members_max)
        if command.member_epoch == JOIN_EPOCH:
            return ModernMember(command.member_id, MemberProfile(), CurrentAssignment())
    member = known_member(group, command.member_id)
    current, said = member.current, command.member_epoch
    # One epoch behind is a member that did not receive the last answer. It need not say what it
    # owns, since others may have the same.
    is_behind = said == current.previous_epoch and said < current.epoch
    if said not in (JOIN_EPOCH, current.epoch) and not is_behind:
        detail = f"the member is at epoch {current.epoch}, not at {said}: it has to join again"
        raise Refused(Reason.FENCED_MEMBER_EPOCH, detail)
    return member


def _update_profile(draft: Draft, member: ModernMember, command: ShareHeartbeat) -> bool:
    """Whether the member reads other topics from now on."""
    said = {
        "rack_id": command.rack_id,
        "client_id": command.client_id,
        "client_host": command.client_host,
        "topics": command.topics,
    }
    profile = with_news(member.profile, said)
    if profile == member.profile and member.member_id in draft.group.profiles:
        return False
    draft.write(MemberRecord(draft.group.group_id, member.member_id, profile))
    return profile.topics != member.profile.topics


def _moved(draft: Draft, before: ModernMember, catalog: TopicCatalog) -> ModernMember:
    """The member has its target at once, without what it does not read any more."""
    group, member_id = draft.group, before.member_id
    member = group.member(member_id)
    assert member is not None
    if member.is_reconciled_to(group.target_epoch):
        return member
    found = (catalog.find(name) for name in member.profile.topics)
    topic_ids = {topic.topic_id for topic in found if topic is not None}
    target = {t: parts for t, parts in group.target(member_id).items() if t in topic_ids}
    current = CurrentAssignment(
        epoch=group.target_epoch,
        previous_epoch=member.current.epoch,
        assigned=in_epoch(target, group.target_epoch),
    )
    draft.write(CurrentRecord(group.group_id, member_id, current))
    return ModernMember(member_id, member.profile, current)


def _parts(current: CurrentAssignment) -> dict[UUID, frozenset[int]]:
    return {topic_id: frozenset(epochs) for topic_id, epochs in current.assigned.items()}


def _has_unassigned(group: ShareGroup) -> bool:
    """Whether the last target lacks partitions that may be assigned by now."""
    if group.epoch > group.target_epoch:
        # They will be in the next one, which is due anyway.
        return False
    given: dict[UUID, set[int]] = {}
    for target in group.targets.values():
        for topic_id, partitions in target.items():
            given.setdefault(topic_id, set()).update(partitions)
    return any(
        group.is_subscribed_to(name) and given.get(topic_id, set()) != partitions
        for topic_id, (name, partitions) in group.queues.initialized.items()
    )


# The state of the group's queues


def missing_queues(group: ShareGroup, catalog: TopicCatalog) -> dict[UUID, NamedPartitions]:
    """The partitions that members read, but for which nothing is kept yet.

    Of a topic whose first partitions were asked for with an unknown outcome, just these: what was
    added to it meanwhile starts elsewhere, and has its turn when they are there.
    """
    missing = {}
    for topic in known_topics(group, catalog):
        kept = group.queues.initialized.get(topic.topic_id)
        asked = group.queues.initializing.get(topic.topic_id)
        partitions = frozenset(range(topic.partitions))
        if kept is not None:
            partitions -= kept.partitions
        elif asked is not None:
            partitions = asked.partitions
        if partitions:
            missing[topic.topic_id] = NamedPartitions(topic.name, partitions)
    return missing


def starts_of(group: ShareGroup, missing: NamedTopics) -> dict[UUID, dict[int, int]]:
    """Where the queues of these partitions start."""
    starts = {}
    for topic_id, (_, partitions) in missing.items():
        start = AT_BEGINNING if topic_id in group.queues.initialized else BY_SETTING
        starts[topic_id] = dict.fromkeys(sorted(partitions), start)
    return starts


def initializing(group: ShareGroup, missing: NamedTopics) -> QueuesRecord:
    """Stored before they are asked for, so that a deletion of the group finds them."""
    queues = group.queues
    return QueuesRecord(
        group.group_id,
        replace(
            queues,
            initializing=_joined(queues.initializing, missing),
            deleting={t: name for t, name in queues.deleting.items() if t not in missing},
        ),
    )


def initialized(group: ShareGroup, asked: NamedTopics, topic_ids: Collection[UUID]) -> QueuesRecord:
    """They are kept now, unless their topic was deleted meanwhile: these are still there."""
    queues = group.queues
    there = {topic_id: named for topic_id, named in asked.items() if topic_id in topic_ids}
    kept = replace(
        queues,
        initializing=_without(queues.initializing, asked),
        initialized=_joined(queues.initialized, there),
    )
    return QueuesRecord(group.group_id, kept)


def deleting(group: ShareGroup) -> QueuesRecord:
    """All that may be kept is being deleted."""
    queues = group.queues
    kept = {**queues.initializing, **queues.initialized}
    names = {topic_id: name for topic_id, (name, _) in kept.items()}
    return QueuesRecord(group.group_id, KeptQueues(deleting={**queues.deleting, **names}))


def deleting_of(group: ShareGroup, topic_ids: Collection[UUID]) -> QueuesRecord:
    """The queues of these topics are being deleted. A member that reads one of them keeps it, or
    what is left of it."""
    queues = group.queues
    kept = {**queues.initializing, **queues.initialized}
    names = {topic_id: kept[topic_id].name for topic_id in topic_ids if topic_id in kept}
    return QueuesRecord(
        group.group_id,
        KeptQueues(
            initializing={t: n for t, n in queues.initializing.items() if t not in topic_ids},
            initialized={t: n for t, n in queues.initialized.items() if t not in topic_ids},
            deleting={**queues.deleting, **names},
        ),
    )


def deleted(group: ShareGroup, topic_ids: Collection[UUID]) -> QueuesRecord:
    left = {t: name for t, name in group.queues.deleting.items() if t not in topic_ids}
    return QueuesRecord(group.group_id, replace(group.queues, deleting=left))


def forgotten(group: ShareGroup, is_gone: Callable[[UUID], bool]) -> QueuesRecord | None:
    """Without the topics that are gone, or None when it knows none of them."""
    queues = group.queues
    topic_ids = {*queues.initializing, *queues.initialized, *queues.deleting}
    gone = {topic_id for topic_id in topic_ids if is_gone(topic_id)}
    if not gone:
        return None
    return QueuesRecord(
        group.group_id,
        KeptQueues(
            initializing={t: named for t, named in queues.initializing.items() if t not in gone},
            initialized={t: named for t, named in queues.initialized.items() if t not in gone},
            deleting={t: name for t, name in queues.deleting.items() if t not in gone},
        ),
    )


def _joined(topics: NamedTopics, more: NamedTopics) -> dict[UUID, NamedPartitions]:
    joined = dict(topics)
    for topic_id, (name, partitions) in more.items():
        before = joined.get(topic_id)
        both = partitions if before is None else partitions | before.partitions
        joined[topic_id] = NamedPartitions(name, both)
    return joined


def _without(topics: NamedTopics, less: NamedTopics) -> dict[UUID, NamedPartitions]:
    left = {}
    for topic_id, (name, partitions) in topics.items():
        rest = partitions - less[topic_id].partitions if topic_id in less else partitions
        if rest:
            left[topic_id] = NamedPartitions(name, rest)
    return left
