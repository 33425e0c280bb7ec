"""Proves that the simulation of groups that change their protocol notices bugs."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from penstock.groups import (
    classic_decisions,
    classic_members,
    consumer_decisions,
    consumer_groups,
    conversions,
    modern_records,
)
from penstock.groups.consumer_groups import ConsumerGroups
from penstock.groups.coordinator import Coordinator
from penstock.groups.effects import Timer
from penstock.groups.group import Group
from penstock.groups.membership import Membership
from penstock.groups.modern_group import ModernGroup
from penstock.groups.modern_records import CurrentAssignment, MemberState
from penstock.groups.records import GroupRemoved
from tests.unit.groups.test_migration_simulation import check_seed

SEEDS_MAX = 40

# Seeds in which what a mutation breaks is known to happen, where the first ones do without it.
KNOWN = {
    "what a member named in its join is forgotten": [73],
    "classic members have no session after the move": [61, 62],
    "the next coordinator does not know of the rebalance": [757],
    "a group that moved back never sees new partitions": [95, 190],
}

MUTATIONS: dict[str, tuple[object, str, Any]] = {}


def mutation(name: str, target: object, attribute: str) -> Callable[[Any], Any]:
    def add(replacement: Any) -> Any:
        MUTATIONS[name] = (target, attribute, replacement)
        return replacement

    return add


# On the way up


@mutation("what classic members were assigned is forgotten", conversions, "_held")
def holds_nothing(group: Any, subscriptions: Any, catalog: Any) -> Any:
    return {member_id: {} for member_id in subscriptions}


_held = conversions._held


@mutation("what a member named in its join is forgotten", conversions, "_held")
def claims_nothing(group: Any, subscriptions: Any, catalog: Any) -> Any:
    silent = {m: conversions.Subscription(topics=s.topics) for m, s in subscriptions.items()}
    return _held(group, silent, catalog)


@mutation("the classic group stays beside the consumer group", consumer_groups, "GroupRemoved")
def other_group(group_id: Any) -> Any:
    return GroupRemoved(group_id + "-of-nobody")


@mutation("classic members have no session after the move", ConsumerGroups, "upgrade_done")
def no_sessions(self: ConsumerGroups, group_id: Any) -> None:
    pass


_close = Group.close


@mutation("who waits for the classic group waits on", Group, "close")
def answers_nobody(self: Group, *reasons: Any) -> Any:
    for member in self.members:
        self.members.take_join(member)
        member.sync_ticket = None
    return _close(self, *reasons)


_upgraded = conversions.upgraded


@mutation("the epoch begins with one", consumer_groups, "upgraded")
def first_epoch(group: Group, around: Any) -> ModernGroup:
    group.generation, generation = 1, group.generation
    try:
        return _upgraded(group, around)
    finally:
        group.generation = generation


@mutation("what classic members said is not stored", modern_records, "write_classic_member")
def nothing_said(_: Any) -> dict[int, bytes]:
    return {}


# In a group of both


@mutation("a classic member that joins owns nothing", classic_decisions, "_by_id")
def owns_nothing(*_: Any) -> Any:
    return {}


@mutation("a classic member is never told to join", classic_members, "has_to_join")
def never_joins(*_: Any, **__: Any) -> bool:
    return False


@mutation("a classic member never gets what has become free", classic_members, "has_to_join")
def only_epochs(group: ModernGroup, member: Any, **_: Any) -> bool:
    giving_up = member.current.state is MemberState.UNREVOKED_PARTITIONS
    return bool(member.current.epoch < group.target_epoch or giving_up)


_synced = classic_decisions.synced


@mutation("a sync tells the target", classic_members, "synced")
def tells_target(group: ModernGroup, command: Any, catalog: Any) -> Any:
    member = group.member(command.member_id)
    if member is None:
        return _synced(group, command, catalog)
    copy = group.copy()
    target = {t: dict.fromkeys(ps, 1) for t, ps in group.target(command.member_id).items()}
    copy.currents[command.member_id] = consumer_decisions.replace(member.current, assigned=target)
    return _synced(copy, command, catalog)


@mutation("an instance of the other protocol is another member", classic_decisions, "_admitted")
def new_member(draft: Any, command: Any, member_id: Any) -> Any:
    existing = draft.group.member(member_id)
    profile = consumer_decisions.MemberProfile()
    return existing or classic_decisions.ModernMember(member_id, profile, CurrentAssignment())


# On the way back


@mutation("a consumer group never becomes a classic one", consumer_groups, "is_classic_after")
def stays_new(*_: Any, **__: Any) -> bool:
    return False


@mutation("a consumer group becomes a classic one too early", consumer_groups, "is_classic_after")
def goes_early(group: ModernGroup, leavers: Any, *_: Any, **__: Any) -> bool:
    return group.classic_count > len(leavers)


@mutation("a group that moved back does not rebalance", Coordinator, "_become_classic")
def stays_quiet(self: Coordinator, group: Group, _: bool) -> None:
    self._classic.adopt(group, is_settled=True)


_generation_record = Membership.generation_record


@mutation("the next coordinator does not know of the rebalance", Membership, "generation_record")
def with_leader(self: Membership, *args: Any) -> Any:
    record = _generation_record(self, *args)
    metadata = consumer_decisions.replace(record.metadata, leader=self.members.leader)
    return record._replace(metadata=metadata)


@mutation("the classic group has the targets", conversions, "held_partitions")
def holds_targets(current: Any) -> Any:
    assigned = {} if current is None else current.assigned
    return {t: frozenset(list(epochs)[:1]) for t, epochs in assigned.items()}


@mutation("a group that moved back never sees new partitions", Group, "topic_changed")
def looks_away(*_: Any) -> list[Any]:
    return []


@mutation("the consumer group stays beside the classic one", ModernGroup, "removal")
def removes_nothing(self: ModernGroup) -> Any:
    return iter(())


# Heartbeats that say nothing new


@mutation("who says nothing new hears nothing new", consumer_groups, "only_lives")
def nothing_is_new(group: ModernGroup, command: Any) -> bool:
    current = group.currents.get(command.member_id)
    says_nothing = command.owned is None and command.topics is None
    return says_nothing and current is not None and command.member_epoch == current.epoch


_decide = ConsumerGroups.decide


@mutation("a short heartbeat does not keep its member", ConsumerGroups, "decide")
def only_long_ones_count(self: ConsumerGroups, group: Any, command: Any, before: Any = ()) -> Any:
    key = command.group_id, Timer.SESSION, command.member_id
    at = self._alarms.at(key)
    decided = _decide(self, group, command, before)
    if at is not None and consumer_groups.only_lives(group, command):
        self._alarms.set_at(key, at)
    return decided


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTATIONS[name])
    with pytest.raises(AssertionError):
        _hunt(KNOWN.get(name, range(SEEDS_MAX)))


def _hunt(seeds: Iterable[int]) -> None:
    for seed in seeds:
        check_seed(seed)


@pytest.mark.parametrize("seed", sorted({seed for seeds in KNOWN.values() for seed in seeds}))
def test_the_known_seeds_pass_without_a_mutation(seed: int) -> None:
    check_seed(seed)
