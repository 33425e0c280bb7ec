"""A group whose partitions the broker assigns (KIP-848), as its records tell it.

The group's epoch grows with every change of its members, their subscriptions or their topics. A
target assignment is made for an epoch. Members come to it one by one (`reconciliation.py`), so that
no partition has two owners on the way. `apply` is the only mutator. Share groups are the same with
a few differences (`share_group.py`).

Compaction keeps the last record of each key, so a replay may see those of one member in any order:
each kind is kept for itself, and what is counted over them follows.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import ClassVar, NamedTuple, TypeVar
from uuid import UUID

from penstock.groups.modern_records import (
    CurrentAssignment,
    CurrentRecord,
    EpochRecord,
    ExpressionRecord,
    GroupEpoch,
    GroupKind,
    MemberProfile,
    MemberRecord,
    MemberState,
    ModernRecord,
    PartitionEpochs,
    Partitions,
    ResolvedExpression,
    TargetEpochRecord,
    TargetRecord,
)
from penstock.model.ids import GroupId, MemberId

# What a group begins with, before anybody reads anything, as in Kafka.
FIRST_EPOCH = 1
NO_PARTITIONS: Partitions = {}
_NOT_MET = CurrentAssignment()

K = TypeVar("K")


class ModernState(Enum):
    """The values are the names that clients and tools know."""

    EMPTY = "Empty"
    # The target is older than the group.
    ASSIGNING = "Assigning"
    # Some members are still on their way to the target.
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ModernMember(NamedTuple):
    member_id: MemberId
    profile: MemberProfile
    current: CurrentAssignment

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.current.state is MemberState.STABLE and self.current.epoch == epoch


class ModernGroup:
    kind: ClassVar = GroupKind.CONSUMER

    def __init__(self, group_id: GroupId) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = 0
        self.profiles: dict[MemberId, MemberProfile] = {}
        self.currents: dict[MemberId, CurrentAssignment] = {}
        self.targets: dict[MemberId, Partitions] = {}
        self.expressions: dict[str, ResolvedExpression] = {}
        # Counted over the above.
        self._static: dict[str, MemberId] = {}
        self._owners: dict[tuple[UUID, int], MemberId] = {}
        self._topics: dict[str, int] = {}
        self._expressions: dict[str, int] = {}
        self._assignors: dict[str, int] = {}
        # Members of the classic protocol, and how many of them know each protocol of theirs.
        self.classic_count = 0
        self._protocols: dict[str, int] = {}

    def copy(self) -> "ModernGroup":
        """Goes its own way from here; the values are never changed, so they are shared."""
        group = type(self)(self.group_id)
        for name, value in vars(self).items():
            setattr(group, name, value.copy() if isinstance(value, dict) else value)
        return group

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModernGroup) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    # What it knows

    @property
    def state(self) -> ModernState:
        """Looks at all members, so not for every heartbeat."""
        if not self.profiles:
            return ModernState.EMPTY
        if self.epoch > self.target_epoch:
            return ModernState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members()):
            return ModernState.STABLE
        return ModernState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.profiles

    @property
    def is_forgettable(self) -> bool:
        """Nobody is in it, and nobody can be about to be."""
        return self.is_empty

    def member(self, member_id: MemberId) -> ModernMember | None:
        profile = self.profiles.get(member_id)
        if profile is None:
            return None
        return ModernMember(member_id, profile, self.currents.get(member_id, _NOT_MET))

    def members(self) -> Iterator[ModernMember]:
        for member_id, profile in self.profiles.items():
            yield ModernMember(member_id, profile, self.currents.get(member_id, _NOT_MET))

    def static_id(self, instance_id: str | None) -> MemberId | None:
        return None if instance_id is None else self._static.get(instance_id)

    @property
    def assignable(self) -> Partitions | None:
        """The partitions that members may have by now; None for all that there are."""
        return None

    def target(self, member_id: MemberId) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_free(self, topic_id: UUID, partition: int, member_id: MemberId) -> bool:
        """Whether nobody but this member has the partition, or still has to give it up."""
        return self._owners.get((topic_id, partition), member_id) == member_id

    def topics_of(self, profile: MemberProfile) -> frozenset[str]:
        """What a member reads, by name and by expression; one that was never looked up has none."""
        resolved = self.expressions.get(profile.expression or "")
        return profile.topics if resolved is None else profile.topics | resolved.topics

    def subscribed_topics(self) -> set[str]:
        topics = set(self._topics)
        for resolved in self.expressions.values():
            topics |= resolved.topics
        return topics

    def is_subscribed_to(self, topic: str) -> bool:
        resolved = self.expressions.values()
        return topic in self._topics or any(topic in each.topics for each in resolved)

    def subscribed_expressions(self) -> Iterable[str]:
        return self._expressions.keys()

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members read the same topics, and say so in the same way."""
        members = len(self.profiles)
        if not self._expressions:
            return all(count == members for count in self._topics.values())
        return not self._topics and all(count == members for count in self._expressions.values())

    def preferred_assignor(
        self, known: Iterable[str], member_id: MemberId | None = None
    ) -> str | None:
        """The one that most members ask for, or None. Of several, as in Kafka: that of the given
        member if nobody else asks for it, otherwise the first in the given order."""
        asked = self._assignors
        profile = None if member_id is None else self.profiles.get(member_id)
        own = None if profile is None else profile.assignor
        if own is not None and asked[own] == max(asked.values()) == 1:
            return own
        return max((name for name in known if name in asked), key=asked.__getitem__, default=None)

    def supports_any(self, protocols: Iterable[str]) -> bool:
        """Whether all members of the classic protocol know one of these protocols of theirs."""
        return any(self._protocols.get(name, 0) == self.classic_count for name in protocols)

    def validate(self) -> None:
        """Asserts what every decision leaves true; for tests, which call it often."""
        assert self.target_epoch <= self.epoch
        assert self.profiles.keys() >= self.currents.keys()
        assert self.profiles.keys() >= self.targets.keys()
        instances = {p.instance_id: m for m, p in self.profiles.items() if p.instance_id}
        assert self._static == instances
        assert len(instances) == sum(p.instance_id is not None for p in self.profiles.values())
        assert self.classic_count == sum(p.classic is not None for p in self.profiles.values())
        seen: dict[tuple[UUID, int], MemberId] = {}
        for member in self.members():
            assert member.current.epoch <= max(self.target_epoch, 0)
            for held in _partitions(member.current):
                other = seen.setdefault(held, member.member_id)
                assert other == member.member_id, f"{held} is {other}'s and {member.member_id}'s"
        assert seen == self._owners
        wanted: dict[tuple[UUID, int], MemberId] = {}
        for member_id, target in self.targets.items():
            for topic_id, partitions in target.items():
                for partition in partitions:
                    other = wanted.setdefault((topic_id, partition), member_id)
                    assert other == member_id, f"{partition} shall be {other}'s and {member_id}'s"

    # Records

    def apply(self, record: ModernRecord) -> None:
        if isinstance(record, CurrentRecord):
            self._set_current(record.member_id, record.value)
        elif isinstance(record, TargetRecord):
            _put(self.targets, record.member_id, record.value)
        elif isinstance(record, TargetEpochRecord):
            self.target_epoch = record.value or 0
        elif isinstance(record, MemberRecord):
            self._set_profile(record.member_id, record.value)
        elif isinstance(record, EpochRecord):
            self.epoch, self.metadata_hash = record.value or GroupEpoch(FIRST_EPOCH, 0)
        else:
            assert isinstance(record, ExpressionRecord)
            _put(self.expressions, record.expression, record.value)

    def records(self) -> Iterator[ModernRecord]:
        """Those that make up the group."""
        group_id, kind = self.group_id, self.kind
        for member_id, profile in self.profiles.items():
            yield MemberRecord(group_id, member_id, profile, kind)
        yield EpochRecord(group_id, GroupEpoch(self.epoch, self.metadata_hash), kind)
        for member_id, target in self.targets.items():
            yield TargetRecord(group_id, member_id, target, kind)
        yield TargetEpochRecord(group_id, self.target_epoch, kind)
        for member_id, current in self.currents.items():
            yield CurrentRecord(group_id, member_id, current, kind)
        for expression, resolved in self.expressions.items():
            yield ExpressionRecord(group_id, expression, resolved)

    def removal(self) -> Iterator[ModernRecord]:
        """The records that end the group; the last one of them does."""
        group_id, kind = self.group_id, self.kind
        for member_id in self.currents:
            yield CurrentRecord(group_id, member_id, None, kind)
        for member_id in self.targets:
            yield TargetRecord(group_id, member_id, None, kind)
        yield TargetEpochRecord(group_id, None, kind)
        for member_id in self.profiles:
            yield MemberRecord(group_id, member_id, None, kind)
        for expression in self.expressions:
            yield ExpressionRecord(group_id, expression, None)
        yield EpochRecord(group_id, None, kind)

    def _set_profile(self, member_id: MemberId, profile: MemberProfile | None) -> None:
        before = self.profiles.get(member_id)
        if before is not None:
            self._count(before, -1)
            if before.instance_id is not None and self._static[before.instance_id] == member_id:
                del self._static[before.instance_id]
        _put(self.profiles, member_id, profile)
        if profile is not None:
            self._count(profile, 1)
            if profile.instance_id is not None:
                self._static[profile.instance_id] = member_id

    def _count(self, profile: MemberProfile, change: int) -> None:
        for topic in profile.topics:
            _add(self._topics, topic, change)
        if profile.expression:
            _add(self._expressions, profile.expression, change)
        if profile.assignor is not None:
            _add(self._assignors, profile.assignor, change)
        if profile.classic is not None:
            self.classic_count += change
            for name, _ in profile.classic.protocols:
                _add(self._protocols, name, change)

    def _set_current(self, member_id: MemberId, current: CurrentAssignment | None) -> None:
        before = self.currents.get(member_id)
        if before is not None:
            for held in _partitions(before):
                if self._owners.get(held) == member_id:
                    del self._owners[held]
        _put(self.currents, member_id, current)
        if current is not None:
            for held in _partitions(current):
                self._owners[held] = member_id


def _partitions(current: CurrentAssignment) -> Iterator[tuple[UUID, int]]:
    yield from _pairs(current.assigned)
    yield from _pairs(current.revoking)


def _pairs(topics: PartitionEpochs) -> Iterator[tuple[UUID, int]]:
    for topic_id, epochs in topics.items():
        for partition in epochs:
            yield topic_id, partition


V = TypeVar("V")


def _put(mapping: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def _add(counts: dict[str, int], name: str, change: int) -> None:
    count = counts.get(name, 0) + change
    if count:
        counts[name] = count
    else:
        del counts[name]
