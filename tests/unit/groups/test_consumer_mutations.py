"""Proves that the simulation of a consumer group notices bugs: each breaks a rule of KIP-848."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.groups import consumer_decisions, reconciliation
from penstock.groups.consumer_decisions import Surroundings
from penstock.groups.modern_group import ModernGroup
from penstock.groups.modern_records import (
    CurrentAssignment,
    CurrentRecord,
    ExpressionRecord,
    MemberRecord,
    ModernRecord,
    TargetEpochRecord,
    TargetRecord,
)
from tests.unit.groups.test_consumer_simulation import check_seed

SEEDS_MAX = 60

MUTATIONS: dict[str, tuple[object, str, Any]] = {}


def mutation(name: str, target: object, attribute: str) -> Callable[[Any], Any]:
    def add(replacement: Any) -> Any:
        MUTATIONS[name] = (target, attribute, replacement)
        return replacement

    return add


_records = ModernGroup.records


def _without(kind: type) -> Callable[[ModernGroup], Iterator[ModernRecord]]:
    return lambda self: (each for each in _records(self) if not isinstance(each, kind))


for _kind, _name in (
    (TargetRecord, "targets"),
    (TargetEpochRecord, "the epoch of the target"),
    (CurrentRecord, "what members have"),
    (MemberRecord, "members"),
    (ExpressionRecord, "what expressions matched"),
):
    mutation(f"a snapshot lacks {_name}", ModernGroup, "records")(_without(_kind))


@mutation("a partition is handed over before it was given up", ModernGroup, "is_free")
def always_free(self: ModernGroup, *_: object) -> bool:
    return True


@mutation("nobody has to give anything up", reconciliation, "_owns_any")
def owns_nothing(*_: object) -> bool:
    return False


_owns_any = reconciliation._owns_any


@mutation("who does not say what it owns owns nothing", reconciliation, "_owns_any")
def silence_is_nothing(owned: Any, revoking: Any) -> bool:
    return owned is not None and _owns_any(owned, revoking)


_renew_epoch = consumer_decisions.renew_epoch


@mutation("another subscription does not bump the epoch", consumer_decisions, "renew_epoch")
def never_bumped(draft: Any, around: Surroundings, *, is_bumped: bool) -> None:
    _renew_epoch(draft, around, is_bumped=False)


@mutation("changed topics do not bump the epoch", consumer_decisions, "metadata_hash")
def same_hash(_: object) -> int:
    return 1


@mutation("an expression is looked up only once", consumer_decisions, "_resolve_expressions")
def resolved_once(draft: Any, around: Surroundings) -> None:
    known = draft.group.expressions
    for expression in list(draft.group.subscribed_expressions()):
        if expression not in known:
            topics = consumer_decisions._matching(expression, around)
            resolved = consumer_decisions.ResolvedExpression(topics, 1, 0)
            draft.write(ExpressionRecord(draft.group.group_id, expression, resolved))


@mutation("a member that is gone keeps its partitions", consumer_decisions, "remove_member")
def keeps_partitions(draft: Any, member_id: Any) -> None:
    draft.write(TargetRecord(draft.group.group_id, member_id, None))
    draft.write(MemberRecord(draft.group.group_id, member_id, None))


@mutation("a member that is gone keeps its target", consumer_decisions, "remove_member")
def keeps_target(draft: Any, member_id: Any) -> None:
    draft.write(CurrentRecord(draft.group.group_id, member_id, None))
    draft.write(MemberRecord(draft.group.group_id, member_id, None))


_advance = reconciliation._advance


@mutation("a member that waits for partitions is taken for settled", reconciliation, "_advance")
def never_waits(current: CurrentAssignment, goal: Any, owned: Any) -> CurrentAssignment:
    after = _advance(current, goal, owned)
    if after.state is reconciliation.MemberState.UNRELEASED_PARTITIONS:
        return consumer_decisions.replace(after, state=reconciliation.MemberState.STABLE)
    return after


@mutation("a member that gives up is in the next epoch already", reconciliation, "_advance")
def early_epoch(current: CurrentAssignment, goal: Any, owned: Any) -> CurrentAssignment:
    after = _advance(current, goal, owned)
    return consumer_decisions.replace(after, epoch=goal.epoch, revoking={})


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTATIONS[name])
    with pytest.raises(AssertionError):
        _hunt()


def _hunt() -> None:
    for seed in range(SEEDS_MAX):
        check_seed(seed)
