"""A share group (KIP-932), as its records tell it.

Its members read from queues, so several of them may have the same partition, and a member changes
over to a new assignment at once. Otherwise it is a group as `modern_group.py` has it. It also knows
for which partitions the state of its queue is kept: only those are handed to members.
"""

from collections.abc import Iterator
from itertools import chain
from typing import ClassVar

from penstock.groups.modern_group import ModernGroup, ModernState
from penstock.groups.modern_records import (
    CurrentAssignment,
    GroupKind,
    KeptQueues,
    MemberState,
    ModernRecord,
    Partitions,
    QueuesRecord,
)
from penstock.model.ids import GroupId, MemberId

_NONE_KEPT = KeptQueues()


class ShareGroup(ModernGroup):
    kind: ClassVar = GroupKind.SHARE

    def __init__(self, group_id: GroupId) -> None:
        super().__init__(group_id)
        self.queues = _NONE_KEPT

    @property
    def state(self) -> ModernState:
        return ModernState.STABLE if self.profiles else ModernState.EMPTY

    @property
    def is_forgettable(self) -> bool:
        """Its queues are kept until somebody deletes the group, as in Kafka."""
        return False

    @property
    def assignable(self) -> Partitions:
        return {t: partitions for t, (_, partitions) in self.queues.initialized.items()}

    def apply(self, record: ModernRecord) -> None:
        if isinstance(record, QueuesRecord):
            self.queues = record.value or _NONE_KEPT
        else:
            super().apply(record)

    def records(self) -> Iterator[ModernRecord]:
        return chain(super().records(), (QueuesRecord(self.group_id, self.queues),))

    def removal(self) -> Iterator[ModernRecord]:
        return chain((QueuesRecord(self.group_id, None),), super().removal())

    def validate(self) -> None:
        assert self.target_epoch <= self.epoch
        assert self.profiles.keys() >= self.currents.keys()
        assert self.profiles.keys() >= self.targets.keys()
        assert not self.expressions, "a share group has no expressions"
        for member in self.members():
            assert member.current.epoch <= self.target_epoch
            assert member.current.state is MemberState.STABLE
            assert not member.current.revoking, "a member of a share group gives nothing up"
        for topic_id, (_, asked) in self.queues.initializing.items():
            kept = self.queues.initialized.get(topic_id)
            assert kept is None or not kept.partitions & asked, f"{asked} are made twice"
        both = self.queues.initialized.keys() & self.queues.deleting.keys()
        assert not both, f"the queues of {both} are kept and deleted"

    def _set_current(self, member_id: MemberId, current: CurrentAssignment | None) -> None:
        """Nobody owns a partition alone."""
        if current is None:
            self.currents.pop(member_id, None)
        else:
            self.currents[member_id] = current
