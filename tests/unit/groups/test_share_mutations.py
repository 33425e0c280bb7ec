"""Proves that the simulation of a share group notices bugs: each breaks a rule of KIP-932."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.groups import consumer_decisions, share_decisions, share_records, simple_assignor
from penstock.groups.modern_group import ModernGroup
from penstock.groups.modern_records import (
    CurrentAssignment,
    CurrentRecord,
    EpochRecord,
    KeptQueues,
    MemberRecord,
    ModernRecord,
    QueuesRecord,
    TargetEpochRecord,
    TargetRecord,
)
from penstock.groups.share_group import ShareGroup
from tests.unit.groups import test_share_simulation as simulation
from tests.unit.groups.test_share_simulation import check_seed

SEEDS_MAX = 60

Patch = tuple[object, str, Any]
MUTATIONS: dict[str, list[Patch]] = {}


def mutation(name: str, *places: tuple[object, str]) -> Callable[[Any], Any]:
    def add(replacement: Any) -> Any:
        MUTATIONS[name] = [(target, attribute, replacement) for target, attribute in places]
        return replacement

    return add


_records = ShareGroup.records


def _without(kind: type) -> Callable[[ShareGroup], Iterator[ModernRecord]]:
    return lambda self: (each for each in _records(self) if not isinstance(each, kind))


for _kind, _name in (
    (TargetRecord, "targets"),
    (TargetEpochRecord, "the epoch of the target"),
    (CurrentRecord, "what members have"),
    (MemberRecord, "members"),
    (EpochRecord, "the epoch"),
    (QueuesRecord, "which queues are kept"),
):
    mutation(f"a snapshot lacks {_name}", (ShareGroup, "records"))(_without(_kind))


@mutation("a partition is handed out before its queue is there", (ShareGroup, "assignable"))
@property
def everything_is_assignable(_: ShareGroup) -> None:
    return None


@mutation("queues that are asked for count as kept", (simulation, "initializing"))
def kept_when_asked(group: ShareGroup, missing: Any) -> QueuesRecord:
    return share_decisions.initialized(group, missing, frozenset(missing))


@mutation("queues that are ready are not handed out", (share_decisions, "_has_unassigned"))
def nothing_is_unassigned(_: ShareGroup) -> bool:
    return False


@mutation("added partitions start where the setting says", (simulation, "starts_of"))
def by_setting(_: ShareGroup, missing: Any) -> Any:
    return {t: dict.fromkeys(ps, share_decisions.BY_SETTING) for t, (_, ps) in missing.items()}


@mutation("every partition starts at its beginning", (simulation, "starts_of"))
def at_beginning(_: ShareGroup, missing: Any) -> Any:
    return {t: dict.fromkeys(ps, share_decisions.AT_BEGINNING) for t, (_, ps) in missing.items()}


@mutation("only the first partitions of a topic get queues", (simulation, "missing_queues"))
def first_partitions_only(group: ShareGroup, catalog: Any) -> Any:
    missing = share_decisions.missing_queues(group, catalog)
    return {t: named for t, named in missing.items() if t not in group.queues.initialized}


@mutation("new queues replace those of a topic", (share_decisions, "_joined"))
def replaced_queues(topics: Any, more: Any) -> Any:
    return {**topics, **more}


@mutation("what was asked for is asked for twice", (share_decisions, "_without"))
def nothing_is_done(topics: Any, _: Any) -> Any:
    return dict(topics)


@mutation("a deleted topic is kept", (simulation, "forgotten"))
def nothing_is_forgotten(group: ShareGroup, _: Any) -> QueuesRecord:
    return QueuesRecord(group.group_id, KeptQueues())


_renew_epoch = consumer_decisions.renew_epoch


@mutation("another subscription does not bump the epoch", (share_decisions, "renew_epoch"))
def never_bumped(draft: Any, around: Any, *, is_bumped: bool) -> None:
    _renew_epoch(draft, around, is_bumped=False)


@mutation("a member that is gone keeps its target", (consumer_decisions, "remove_member"))
def keeps_target(draft: Any, member_id: Any) -> None:
    draft.write(CurrentRecord(draft.group.group_id, member_id, None))
    draft.write(MemberRecord(draft.group.group_id, member_id, None))


@mutation("a member keeps what it does not read any more", (share_decisions, "_moved"))
def keeps_unread(draft: Any, before: Any, _: Any) -> Any:
    group, member_id = draft.group, before.member_id
    member = group.member(member_id)
    target = {**group.target(member_id), **share_decisions._parts(member.current)}
    current = CurrentAssignment(
        epoch=group.target_epoch,
        previous_epoch=member.current.epoch,
        assigned=share_records.in_epoch(target, group.target_epoch),
    )
    draft.write(CurrentRecord(group.group_id, member_id, current))
    return member._replace(current=current)


@mutation("a member changes over to another epoch than the target's", (share_decisions, "_moved"))
def next_epoch(draft: Any, before: Any, catalog: Any) -> Any:
    after = _moved(draft, before, catalog)
    if after.current is before.current:
        return after
    current = replace(after.current, epoch=after.current.epoch + 1)
    draft.write(CurrentRecord(draft.group.group_id, before.member_id, current))
    return after._replace(current=current)


_moved = share_decisions._moved


@mutation("members share nothing", (simple_assignor._Deal, "_give"))
def given_once(self: Any) -> None:
    members = sorted(self._shares)
    for number, place in enumerate(self._holders.in_order()):
        if not self._holders[place]:
            self.keep(members[number % len(members)], place)


@mutation("who has too much keeps it", (simple_assignor._Deal, "_take_from_the_rich"))
def the_rich_keep_it(_: Any) -> None:
    pass


@mutation("an older epoch is let in", (share_decisions, "_admitted"))
def anybody(group: ModernGroup, command: Any, around: Any) -> Any:
    return group.member(command.member_id) or _admitted(group, command, around)


_admitted = share_decisions._admitted


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, attribute, replacement in MUTATIONS[name]:
        monkeypatch.setattr(target, attribute, replacement)
    with pytest.raises(AssertionError):
        _hunt()


def _hunt() -> None:
    for seed in range(SEEDS_MAX):
        check_seed(seed)
