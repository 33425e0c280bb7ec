"""Bugs to inject into consumer groups (KIP-848): what runs of nodes with such members must notice.

The docstring of each says which rule it breaks. What one group does alone has mutations of its own
(`tests/unit/groups/test_consumer_mutations.py`): these need a log, failures and more than one node.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.groups import coordinator
from penstock.groups.catalog import TopicCatalog
from penstock.groups.commands import CommitOffsets, ConsumerAnswer, ConsumerHeartbeat
from penstock.groups.consumer_groups import ConsumerGroups
from penstock.groups.modern_group import ModernGroup
from penstock.groups.modern_records import CurrentRecord, ModernRecord, TargetRecord
from penstock.groups.records import GroupRecord
from penstock.model.errors import Reason
from penstock.model.ids import GroupId
from tests.sim.mutation import Mutations

ALL = Mutations()
mutation = ALL.add

_decide = ConsumerGroups.decide
_records = ModernGroup.records


@mutation("a member is told what is not stored yet", (ConsumerGroups, "decide"))
def told_too_early(
    self: ConsumerGroups,
    group: ModernGroup,
    command: ConsumerHeartbeat,
    before: Sequence[GroupRecord] = (),
) -> tuple[ConsumerAnswer, asyncio.Future[None] | None]:
    """What a member is told outlives its coordinator."""
    answer, _ = _decide(self, group, command, before)
    return answer, None


@mutation("a late commit counts", (coordinator, "check_commit"))
def late_commits_count(_: ModernGroup, command: CommitOffsets, __: TopicCatalog) -> Any:
    """Whoever lost a partition may not say how far it came."""
    return list[Reason | None]([None]) * len(command.offsets)


@mutation("a member may commit what is another's", (ModernGroup, "is_free"))
def nothing_is_anothers(self: ModernGroup, *_: object) -> bool:
    """A partition has one owner, who commits."""
    return True


@mutation("a snapshot lacks the targets", (ModernGroup, "records"))
def snapshot_without_targets(self: ModernGroup) -> Iterator[ModernRecord]:
    """A snapshot holds what the log says."""
    return (each for each in _records(self) if not isinstance(each, TargetRecord))


@mutation("a snapshot lacks what members have", (ModernGroup, "records"))
def snapshot_without_assignments(self: ModernGroup) -> Iterator[ModernRecord]:
    """The next coordinator would give the same partitions to others."""
    return (each for each in _records(self) if not isinstance(each, CurrentRecord))


@mutation("what is decided is only in memory", (ConsumerGroups, "store"))
def stores_nothing(
    self: ConsumerGroups, group_id: GroupId, records: Sequence[GroupRecord]
) -> asyncio.Future[None]:
    """What was decided is in the log, and not only here."""
    for record in records:
        self._host.state.apply(record)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done
