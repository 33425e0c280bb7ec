"""What follows from the heartbeats of a consumer group (KIP-848): records, and an answer.

Pure: a decision looks at the group and its surroundings, and `ModernGroup.apply` does the rest.
What is public here is also part of the decisions on share groups (`share_decisions.py`). The rules
are Kafka's, but for these:

- the topics of a new regular expression are looked up by the group's next heartbeat, and not in the
  background; in both cases the heartbeat that brings it is answered without them;
- partitions are assigned as soon as the group's epoch has grown, without a pause in between, but
  for what may take long: that is done beside (`target_maker.py`), with the old target until then;
- the racks of partitions play no part, since no assignor looks at them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from penstock.groups.assignors import Assignor, is_quick
from penstock.groups.catalog import TopicCatalog, metadata_hash
from penstock.groups.commands import ConsumerAnswer, ConsumerHeartbeat
from penstock.groups.modern_group import FIRST_EPOCH, ModernGroup, ModernMember
from penstock.groups.modern_records import (
    CurrentAssignment,
    CurrentRecord,
    EpochRecord,
    ExpressionRecord,
    GroupEpoch,
    MemberProfile,
    MemberRecord,
    MemberState,
    ModernRecord,
    Partitions,
    ResolvedExpression,
    TargetEpochRecord,
    TargetRecord,
)
from penstock.groups.reconciliation import Goal, is_subset, reconcile
from penstock.groups.settings import MigrationPolicy
from penstock.groups.targets import known_topics, target_records, target_work
from penstock.model.errors import Reason, Refused
from penstock.model.ids import MemberId

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
# A static member left, and will be back as the same instance.
AWAY_EPOCH = -2


class Expression(Protocol):
    def matches(self, topic: str) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a decision depends on besides the group."""

    catalog: TopicCatalog
    # By name; the first one is for members that ask for none.
    assignors: Mapping[str, Assignor]
    compile_expression: Callable[[str], Expression]
    members_max: int
    # Of a group that became a classic one again.
    classic_members_max: int
    migration: MigrationPolicy
    heartbeat_interval_ms: int
    now_ms: int
    # Topics may have come, gone or grown since the group was looked at last, or an expression waits
    # to be looked up.
    is_stale: bool = False
    # A worker makes a target for the group just now.
    is_target_under_way: bool = False


class Decision(NamedTuple):
    records: list[ModernRecord]
    answer: ConsumerAnswer
    # Before and after; None for one that has left.
    before: CurrentAssignment | None = None
    after: ModernMember | None = None
    # The group's next heartbeat has to look up what the member's expression matches.
    is_unresolved: bool = False
    is_target_due: bool = False
    # Of a share group: members read partitions for which the state of its queue is not kept yet.
    lacks_queues: bool = False


class _Change(NamedTuple):
    """What a heartbeat says of the topics that its member reads."""

    # It reads something else from now on.
    is_any: bool = False
    # It is known by now what that is, so the group has to assign again.
    is_known: bool = False


class Draft:
    """The group as it will be once the records that are decided so far are applied."""

    def __init__(self, group: ModernGroup) -> None:
        self.group = group
        self.records: list[ModernRecord] = []
        # The target of the group's epoch has to be made elsewhere.
        self.is_target_due = False

    def write(self, record: ModernRecord) -> None:
        if not self.records:
            self.group = self.group.copy()
        record = record._replace(kind=self.group.kind)
        self.group.apply(record)
        self.records.append(record)


def decide_heartbeat(
    group: ModernGroup, command: ConsumerHeartbeat, around: Surroundings
) -> Decision:
    """Raises Refused for a member that can't be in the group. A member that only says that it lives
    costs the same in a group of any size, and writes nothing."""
    draft = Draft(group)
    member = _admitted(draft, command, around)
    profile = _updated(member.profile, command)
    after = progress(draft, member, profile, command.owned, around)
    tells_all = command.is_full or has_missed_answer(member.current, command.member_epoch)
    is_other = after.current.assigned != member.current.assigned
    answer = ConsumerAnswer(
        member_id=member.member_id,
        member_epoch=after.current.epoch,
        heartbeat_interval_ms=around.heartbeat_interval_ms,
        assignment=(
            {topic_id: frozenset(epochs) for topic_id, epochs in after.current.assigned.items()}
            if tells_all or is_other
            else None
        ),
    )
    is_unresolved = _is_unresolved(draft.group, after.profile)
    return Decision(
        draft.records, answer, member.current, after, is_unresolved, draft.is_target_due
    )


def only_lives(group: ModernGroup, command: ConsumerHeartbeat) -> bool:
    """Whether a member says nothing but that it lives, and nothing is left to do for it, as is true
    of nearly all heartbeats: `decide_heartbeat` would find the same. Whether the topics of the
    group have changed is not looked at."""
    profile = group.profiles.get(command.member_id)
    current = group.currents.get(command.member_id)
    return (
        profile is not None
        and current is not None
        and command.member_epoch == current.epoch == group.target_epoch == group.epoch
        and current.state is MemberState.STABLE
        and command.owned is None
        and command.topics is None
        and command.expression is None
        and command.assignor is None
        and command.instance_id is None
        and command.rack_id is None
        and command.rebalance_timeout_ms is None
        and command.client_id == profile.client_id
        and command.client_host == profile.client_host
        and profile.classic is None
    )


def has_missed_answer(current: CurrentAssignment, said: int) -> bool:
    """A member that joins, or that is an epoch behind, does not know what it has now. It would go
    on with what it was told before, of which some may be another's by now."""
    return said == JOIN_EPOCH or said < current.epoch


def progress(
    draft: Draft,
    member: ModernMember,
    profile: MemberProfile,
    owned: Partitions | None,
    around: Surroundings,
) -> ModernMember:
    """The member as it is after it said all this, and the group with it."""
    change = update_profile(draft, member, profile, around)
    if draft.group.epoch > draft.group.target_epoch:
        assign(draft, member.member_id, around)
    return reconciled(draft, member.member_id, owned, around, is_changed=change.is_any)


def decide_leave(group: ModernGroup, command: ConsumerHeartbeat, around: Surroundings) -> Decision:
    member_id, instance_id = command.member_id, command.instance_id
    answer = ConsumerAnswer(member_id=member_id, member_epoch=command.member_epoch)
    if instance_id is None:
        member = known_member(group, member_id)
    else:
        member = check_instance(group, member_id, instance_id)
    if instance_id is not None and command.member_epoch == AWAY_EPOCH:
        away = replace(member.current, epoch=AWAY_EPOCH, revoking={})
        record = CurrentRecord(group.group_id, member_id, away)
        after = ModernMember(member_id, member.profile, away)
        return Decision([record], answer, member.current, after)
    return Decision(decide_removal(group, [member_id], around), answer, member.current)


def decide_removal(
    group: ModernGroup, member_ids: Iterable[MemberId], around: Surroundings
) -> list[ModernRecord]:
    """Members go, and what they had is free; the next heartbeat of another one assigns it."""
    draft = Draft(group)
    for member_id in member_ids:
        remove_member(draft, member_id)
    renew_epoch(draft, around, is_bumped=True)
    return draft.records


# Who may be in the group


def _admitted(draft: Draft, command: ConsumerHeartbeat, around: Surroundings) -> ModernMember:
    group, member_id, instance_id = draft.group, command.member_id, command.instance_id
    is_joining = command.member_epoch == JOIN_EPOCH
    static_id = group.static_id(instance_id)
    if static_id is None and member_id not in group.profiles:
        check_size(group, around.members_max)
        if is_joining:
            return ModernMember(member_id, MemberProfile(), CurrentAssignment())
    if instance_id is not None and static_id is not None and is_joining:
        existing = known_member(group, static_id)
        if existing.profile.classic is None and existing.current.epoch != AWAY_EPOCH:
            detail = f"instance {instance_id} of group {group.group_id} is {static_id}"
            raise Refused(Reason.UNRELEASED_INSTANCE_ID, detail)
        return replaced_member(draft, existing, member_id)
    if instance_id is not None and not is_joining:
        member = check_instance(group, member_id, instance_id)
    else:
        member = known_member(group, member_id)
    _check_epoch(member.current, command)
    return member


def check_size(group: ModernGroup, members_max: int) -> None:
    if len(group.profiles) >= members_max:
        detail = f"group {group.group_id} has {len(group.profiles)} members, and may not have more"
        raise Refused(Reason.GROUP_MAX_SIZE_REACHED, detail)


def known_member(group: ModernGroup, member_id: MemberId) -> ModernMember:
    member = group.member(member_id)
    if member is None:
        detail = f"{member_id} is not a member of group {group.group_id}"
        raise Refused(Reason.UNKNOWN_MEMBER_ID, detail)
    return member


def check_instance(group: ModernGroup, member_id: MemberId, instance_id: str) -> ModernMember:
    static_id = group.static_id(instance_id)
    if static_id is None:
        detail = f"group {group.group_id} has no instance {instance_id}"
        raise Refused(Reason.UNKNOWN_MEMBER_ID, detail)
    if static_id != member_id:
        detail = f"instance {instance_id} of group {group.group_id} is now {static_id}"
        raise Refused(Reason.FENCED_INSTANCE_ID, detail)
    return known_member(group, member_id)


def _check_epoch(current: CurrentAssignment, command: ConsumerHeartbeat) -> None:
    """A member may be one epoch behind when it did not receive the last answer: it then owns
    nothing that it may not have."""
    said = command.member_epoch
    if said in (JOIN_EPOCH, current.epoch):
        return
    is_behind = said == current.previous_epoch and said < current.epoch
    if is_behind and is_subset(command.owned, current.assigned):
        return
    detail = f"the member is at epoch {current.epoch}, not at {said}: it has to join again"
    raise Refused(Reason.FENCED_MEMBER_EPOCH, detail)


def replaced_member(draft: Draft, existing: ModernMember, member_id: MemberId) -> ModernMember:
    """A static member comes back, maybe under another id, and goes on with what it had."""
    group_id = draft.group.group_id
    target = draft.group.target(existing.member_id)
    current = replace(existing.current, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    remove_member(draft, existing.member_id)
    draft.write(MemberRecord(group_id, member_id, existing.profile))
    draft.write(TargetRecord(group_id, member_id, target))
    draft.write(CurrentRecord(group_id, member_id, current))
    return ModernMember(member_id, existing.profile, current)


def remove_member(draft: Draft, member_id: MemberId) -> None:
    group_id = draft.group.group_id
    draft.write(CurrentRecord(group_id, member_id, None))
    draft.write(TargetRecord(group_id, member_id, None))
    draft.write(MemberRecord(group_id, member_id, None))


# What it wants to read


def update_profile(
    draft: Draft, member: ModernMember, profile: MemberProfile, around: Surroundings
) -> _Change:
    """Also what follows for the group's epoch, and from other topics that it reads."""
    change = _changed_profile(draft, member, profile, around)
    if change.is_known or around.is_stale:
        renew_epoch(draft, around, is_bumped=change.is_known)
    return change


def _changed_profile(
    draft: Draft, member: ModernMember, profile: MemberProfile, around: Surroundings
) -> _Change:
    before = member.profile
    is_member = member.member_id in draft.group.profiles
    if is_member and profile == before:
        return _Change()
    has_topics = profile.topics != before.topics
    has_expression = (profile.expression or "") != (before.expression or "")
    if has_expression and profile.expression:
        around.compile_expression(profile.expression)
    draft.write(MemberRecord(draft.group.group_id, member.member_id, profile))
    is_known = has_topics or (has_expression and not _is_unresolved(draft.group, profile))
    return _Change(has_topics or has_expression, is_known)


def _is_unresolved(group: ModernGroup, profile: MemberProfile) -> bool:
    return bool(profile.expression) and profile.expression not in group.expressions


def _updated(profile: MemberProfile, command: ConsumerHeartbeat) -> MemberProfile:
    said: dict[str, object] = {
        "instance_id": command.instance_id,
        "rack_id": command.rack_id,
        "client_id": command.client_id,
        "client_host": command.client_host,
        "topics": command.topics,
        "expression": command.expression,
        "rebalance_timeout_ms": command.rebalance_timeout_ms,
        "assignor": command.assignor,
    }
    updated = with_news(profile, said)
    # From now on it speaks the new protocol.
    return updated if updated.classic is None else replace(updated, classic=None)


def with_news(profile: MemberProfile, said: Mapping[str, object]) -> MemberProfile:
    """None says nothing; a profile without news is the same one."""
    changed = {
        name: value
        for name, value in said.items()
        if value is not None and value != getattr(profile, name)
    }
    return replace(profile, **changed) if changed else profile  # type: ignore[arg-type]


def renew_epoch(draft: Draft, around: Surroundings, *, is_bumped: bool) -> None:
    """The group's next epoch, if it was changed or its topics were."""
    is_resolved = _resolve_expressions(draft, around)
    found = metadata_hash(known_topics(draft.group, around.catalog))
    if is_bumped or is_resolved or found != draft.group.metadata_hash:
        epoch = GroupEpoch(draft.group.epoch + 1, found)
        draft.write(EpochRecord(draft.group.group_id, epoch))


def _resolve_expressions(draft: Draft, around: Surroundings) -> bool:
    """Whether a member may read other topics now: also with an expression that matches nothing, if
    it had another one before."""
    group_id = draft.group.group_id
    wanted, known = set(draft.group.subscribed_expressions()), draft.group.expressions
    for expression in known.keys() - wanted:
        draft.write(ExpressionRecord(group_id, expression, None))
    if not around.is_stale:
        return False
    has_news = False
    for expression in sorted(wanted):
        before = draft.group.expressions.get(expression)
        topics = _matching(expression, around)
        if before is None or topics != before.topics:
            version = 1 if before is None else before.version + 1
            resolved = ResolvedExpression(topics, version, around.now_ms)
            draft.write(ExpressionRecord(group_id, expression, resolved))
            has_news = True
    return has_news


def _matching(expression: str, around: Surroundings) -> frozenset[str]:
    try:
        compiled = around.compile_expression(expression)
    except Refused:
        # It was valid for the version that stored it.
        return frozenset()
    return frozenset(topic.name for topic in around.catalog.all() if compiled.matches(topic.name))


# Who gets what


def assign(draft: Draft, member_id: MemberId, around: Surroundings) -> None:
    """A target for the group's epoch, or a note that it takes too long to be made here."""
    group = draft.group
    if not around.is_target_under_way:
        work = target_work(group, around.assignors, around.catalog, member_id)
        if is_quick(work.assignor, work.spec):
            for record in [*target_records(group, work.assignor.assign(work.spec))]:
                draft.write(record)
            return
    draft.is_target_due = True
    if group.target_epoch < FIRST_EPOCH:
        # So that its members have an epoch, in which they own nothing.
        draft.write(TargetEpochRecord(group.group_id, FIRST_EPOCH))


def reconciled(
    draft: Draft,
    member_id: MemberId,
    owned: Partitions | None,
    around: Surroundings,
    *,
    is_changed: bool,
) -> ModernMember:
    group = draft.group
    member = group.member(member_id)
    assert member is not None
    if member.is_reconciled_to(group.target_epoch):
        return member
    names = group.topics_of(member.profile)
    found = (around.catalog.find(name) for name in names)
    topic_ids = {topic.topic_id for topic in found if topic is not None}
    goal = Goal(
        epoch=group.target_epoch,
        target=group.target(member_id),
        is_subscribed=topic_ids.__contains__,
        is_free=lambda topic_id, partition: group.is_free(topic_id, partition, member_id),
    )
    current = reconcile(member.current, goal, owned, is_changed=is_changed)
    if current == member.current:
        return member
    draft.write(CurrentRecord(group.group_id, member_id, current))
    return ModernMember(member_id, member.profile, current)
