"""Drives the decisions of one share group by hand, on topics that exist only here."""

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from penstock.groups.commands import ConsumerAnswer, ShareHeartbeat
from penstock.groups.consumer_decisions import Decision, Surroundings, decide_removal
from penstock.groups.modern_group import ModernMember
from penstock.groups.modern_records import ModernRecord, Partitions
from penstock.groups.records import GroupRecordCodec
from penstock.groups.settings import MigrationPolicy
from penstock.groups.share_decisions import (
    decide_heartbeat,
    decide_leave,
    initialized,
    initializing,
    missing_queues,
    starts_of,
)
from penstock.groups.share_group import ShareGroup
from penstock.groups.simple_assignor import SimpleAssignor
from penstock.model.ids import GroupId, MemberId
from tests.unit.groups.consumer_rig import FakeCatalog, compile_prefix

GROUP = GroupId("workers")


class ShareRig:
    def __init__(self, **topics: int) -> None:
        self.catalog = FakeCatalog()
        for name, partitions in topics.items():
            self.catalog.make(name, partitions)
        self.group = ShareGroup(GROUP)
        self.is_stale = False
        self.members_max = 100
        self.log: list[ModernRecord] = []
        self._codec = GroupRecordCodec()

    @property
    def around(self) -> Surroundings:
        return Surroundings(
            catalog=self.catalog,
            assignors={"simple": SimpleAssignor()},
            compile_expression=compile_prefix,
            members_max=self.members_max,
            classic_members_max=self.members_max,
            migration=MigrationPolicy.DISABLED,
            heartbeat_interval_ms=5_000,
            now_ms=1_000,
            is_stale=self.is_stale,
        )

    def heartbeat(self, member_id: str, epoch: int, **fields: object) -> ConsumerAnswer:
        return self.decide(member_id, epoch, **fields).answer

    def decide(self, member_id: str, epoch: int, **fields: object) -> Decision:
        command = ShareHeartbeat(
            group_id=GROUP, member_id=MemberId(member_id), member_epoch=epoch, client_id="client"
        )
        command = replace(command, **fields)  # type: ignore[arg-type]
        leaves = epoch < 0
        decision = (decide_leave if leaves else decide_heartbeat)(self.group, command, self.around)
        self.is_stale = self.is_stale and leaves
        self.apply(decision.records)
        return decision

    def join(self, member_id: str, *topics: str, **fields: object) -> ConsumerAnswer:
        return self.heartbeat(member_id, 0, topics=frozenset(topics), **fields)

    def make_queues(self) -> dict[UUID, dict[int, int]]:
        """As the job beside the heartbeats does; where each queue starts."""
        missing = missing_queues(self.group, self.catalog)
        starts = starts_of(self.group, missing)
        if missing:
            self.apply([initializing(self.group, missing)])
            self.apply([initialized(self.group, missing, frozenset(missing))])
            self.is_stale = True
        return starts

    def settle(self, *member_ids: str) -> None:
        """These members say that they live, with their own epochs."""
        for member_id in member_ids:
            self.heartbeat(member_id, self.member(member_id).current.epoch)

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
