"""Drives the decisions of one consumer group by hand, on topics that exist only here."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from penstock.groups.assignors import Assignment, AssignmentSpec
from penstock.groups.catalog import KnownTopic
from penstock.groups.commands import ConsumerAnswer, ConsumerHeartbeat
from penstock.groups.consumer_decisions import (
    Decision,
    Expression,
    Surroundings,
    decide_heartbeat,
    decide_leave,
    decide_removal,
    only_lives,
)
from penstock.groups.modern_group import ModernGroup, ModernMember
from penstock.groups.modern_records import ModernRecord, Partitions
from penstock.groups.records import GroupRecordCodec
from penstock.groups.settings import GroupSettings, MigrationPolicy
from penstock.groups.simple_assignor import SimpleAssignor
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicId

GROUP = GroupId("readers")
REBALANCE_MS = 30_000


class FakeCatalog:
    def __init__(self) -> None:
        self.topics: dict[str, KnownTopic] = {}
        self._made = 0

    def make(self, name: str, partitions: int) -> UUID:
        self._made += 1
        self.topics[name] = KnownTopic(UUID(int=self._made), name, partitions)
        return self.topics[name].topic_id

    def grow(self, name: str, partitions: int) -> None:
        self.topics[name] = self.topics[name]._replace(partitions=partitions)

    def find(self, name: str) -> KnownTopic | None:
        return self.topics.get(name)

    def find_by_id(self, topic_id: UUID) -> KnownTopic | None:
        found = [topic for topic in self.topics.values() if topic.topic_id == topic_id]
        return found[0] if found else None

    def all(self) -> Iterable[KnownTopic]:
        return self.topics.values()


class InTurn:
    """Partition by partition to the members that read its topic, in the order of their ids."""

    name = "in-turn"

    def assign(self, spec: AssignmentSpec) -> dict[MemberId, Assignment]:
        given: dict[MemberId, dict[UUID, frozenset[int]]] = {each: {} for each in spec.members}
        for topic_id, partitions in spec.partitions.items():
            readers = sorted(m for m, each in spec.members.items() if topic_id in each.topic_ids)
            for index, member_id in enumerate(readers):
                own = frozenset(range(index, partitions, len(readers)))
                if own:
                    given[member_id][topic_id] = own
        return dict(given)


class Backwards(InTurn):
    """The other way around, so that a change of the assignor moves something."""

    name = "backwards"

    def assign(self, spec: AssignmentSpec) -> dict[MemberId, Assignment]:
        members = sorted(spec.members)
        swapped = dict(zip(members, reversed(members), strict=True))
        turned = replace(spec, members={swapped[m]: each for m, each in spec.members.items()})
        return {swapped[m]: given for m, given in super().assign(turned).items()}


class Prefix:
    """Stands for a regular expression: matches topics that begin with its text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def matches(self, topic: str) -> bool:
        return topic.startswith(self.text)


def compile_prefix(text: str) -> Expression:
    if text.startswith("*"):
        raise Refused(Reason.INVALID_REGULAR_EXPRESSION, "nothing to repeat")
    return Prefix(text)


class FakeQueues:
    """Remembers what was asked of it; as long as it is held up, it does not answer."""

    def __init__(self) -> None:
        self.made: list[tuple[GroupId, dict[UUID, dict[int, int]]]] = []
        self.deleted: list[tuple[GroupId, frozenset[UUID]]] = []
        self.altered: list[dict[tuple[TopicId, int], int]] = []
        self.gone: list[tuple[GroupId, frozenset[MemberId]]] = []
        self.refusal: Refused | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def initialize(
        self, group_id: GroupId, partitions: Mapping[TopicId, Mapping[int, int]]
    ) -> None:
        self.made.append((group_id, {UUID(int=t.int): dict(p) for t, p in partitions.items()}))
        await self.may_answer.wait()
        if self.refusal is not None:
            raise self.refusal

    async def delete_offsets(
        self, group_id: GroupId, topics: Collection[TopicId]
    ) -> Mapping[TopicId, Refused | None]:
        self.deleted.append((group_id, frozenset(topics)))
        await self.may_answer.wait()
        return dict.fromkeys(topics, self.refusal)

    async def alter_offsets(
        self, group_id: GroupId, offsets: Mapping[tuple[TopicId, int], int]
    ) -> Mapping[tuple[TopicId, int], Refused | None]:
        self.altered.append(dict(offsets))
        await self.may_answer.wait()
        return dict.fromkeys(offsets, self.refusal)

    async def members_gone(self, group_id: GroupId, member_ids: Collection[MemberId]) -> None:
        self.gone.append((group_id, frozenset(member_ids)))
        await self.may_answer.wait()


def no_topics(**settings: int) -> dict[str, Any]:
    """What a coordinator needs besides its host, where no topic exists."""
    return {
        "catalog": FakeCatalog(),
        "assignors": {"in-turn": InTurn()},
        "share_assignors": {"simple": SimpleAssignor()},
        "queues": FakeQueues(),
        "settings_of": lambda _: GroupSettings(**settings),
    }


class ConsumerRig:
    def __init__(self, **topics: int) -> None:
        self.catalog = FakeCatalog()
        for name, partitions in topics.items():
            self.catalog.make(name, partitions)
        self.group = ModernGroup(GROUP)
        self.is_stale = False
        # How many heartbeats a coordinator would have answered without deciding.
        self.lived_on = 0
        self.members_max = 100
        self.migration = MigrationPolicy.BIDIRECTIONAL
        self.log: list[ModernRecord] = []
        self._codec = GroupRecordCodec()

    @property
    def around(self) -> Surroundings:
        return Surroundings(
            catalog=self.catalog,
            assignors={"in-turn": InTurn(), "backwards": Backwards()},
            compile_expression=compile_prefix,
            members_max=self.members_max,
            classic_members_max=self.members_max,
            migration=self.migration,
            heartbeat_interval_ms=5_000,
            now_ms=1_000,
            is_stale=self.is_stale,
        )

    def heartbeat(self, member_id: str, epoch: int, **fields: object) -> ConsumerAnswer:
        """None of what is not given; `owned` and `topics` in any form."""
        return self.decide(member_id, epoch, **fields).answer

    def decide(self, member_id: str, epoch: int, **fields: object) -> Decision:
        command = ConsumerHeartbeat(
            group_id=GROUP, member_id=MemberId(member_id), member_epoch=epoch, client_id="client"
        )
        command = replace(command, **fields)  # type: ignore[arg-type]
        leaves = epoch < 0
        is_quiet = not self.is_stale and not self.group.subscribed_expressions()
        lives_on = is_quiet and only_lives(self.group, command)
        decision = (decide_leave if leaves else decide_heartbeat)(self.group, command, self.around)
        if lives_on:
            # The coordinator answers such a member without deciding.
            assert not decision.records
            assert not decision.is_target_due
            assert decision.answer.assignment is None
            assert decision.answer.member_epoch == epoch
            self.lived_on += 1
        self.is_stale = decision.is_unresolved or (self.is_stale and leaves)
        self.apply(decision.records)
        return decision

    def join(self, member_id: str, *topics: str, **fields: object) -> ConsumerAnswer:
        said: dict[str, object] = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "topics": frozenset(topics),
            "owned": {},
        }
        return self.heartbeat(member_id, 0, **(said | fields))

    def fence(self, *member_ids: str) -> None:
        self.apply(decide_removal(self.group, [MemberId(each) for each in member_ids], self.around))

    def apply(self, records: Iterable[ModernRecord]) -> None:
        """As they come back from the log."""
        for record in records:
            decoded = self._codec.decode(*self._codec.encode(record))
            assert decoded == record
            self.log.append(record)
            self.group.apply(record)
        self.group.validate()

    def member(self, member_id: str) -> ModernMember:
        member = self.group.member(MemberId(member_id))
        assert member is not None
        return member

    def topic(self, name: str) -> UUID:
        return self.catalog.topics[name].topic_id

    def partitions(self, **topics: Iterable[int]) -> Partitions:
        return {self.topic(name): frozenset(parts) for name, parts in topics.items()}
