"""Assignors: every partition has one owner, who wanted it; the load is even; little moves."""

import random
import time
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.groups.assignors import (
    ENTRY_POINTS,
    Assignment,
    AssignmentSpec,
    GuardedAssignor,
    MemberSubscription,
    load_assignor,
    load_assignors,
)
from penstock.model.errors import Explained, Reason, Refused
from penstock.model.ids import MemberId
from tests.documents import ROOT, Document

TOPICS = [UUID(int=number) for number in range(1, 6)]
# The promise is 50 ms of the loop; a shared machine gets some room.
LARGE_GROUP_SECONDS_MAX = 0.2


def spec_of(
    wanted: Mapping[str, frozenset[UUID]],
    partitions: Mapping[UUID, int],
    assigned: Mapping[MemberId, Assignment] | None = None,
    instances: Mapping[str, str] | None = None,
) -> AssignmentSpec:
    members = {
        MemberId(member): MemberSubscription(
            instance_id=(instances or {}).get(member),
            topic_ids=topic_ids,
            assigned=(assigned or {}).get(MemberId(member), {}),
        )
        for member, topic_ids in wanted.items()
    }
    return AssignmentSpec(
        members=members, partitions=partitions, is_homogeneous=len(set(wanted.values())) == 1
    )


def owners(assignments: Mapping[MemberId, Assignment]) -> dict[tuple[UUID, int], MemberId]:
    found: dict[tuple[UUID, int], MemberId] = {}
    for member, assignment in assignments.items():
        for topic_id, numbers in assignment.items():
            assert numbers, "a topic without partitions is left out"
            for number in numbers:
                assert (topic_id, number) not in found, "two owners"
                found[topic_id, number] = member
    return found


def loads(assignments: Mapping[MemberId, Assignment]) -> list[int]:
    return [sum(map(len, assignment.values())) for assignment in assignments.values()]


members = st.integers(0, 12).map(lambda number: f"m{number}")
topic_sets = st.sets(st.sampled_from(TOPICS)).map(frozenset)
counts = st.fixed_dictionaries({topic_id: st.integers(1, 12) for topic_id in TOPICS})
mixed_groups = st.dictionaries(members, topic_sets, max_size=9)
uniform_groups = st.builds(
    lambda names, topic_ids: dict.fromkeys(names, topic_ids),
    st.sets(members, min_size=1, max_size=9),
    topic_sets,
)


@given(
    name=st.sampled_from(["uniform", "range"]),
    first=mixed_groups | uniform_groups,
    second=mixed_groups | uniform_groups,
    partitions=counts,
)
@settings(max_examples=100, deadline=None)
def test_every_partition_of_a_subscribed_topic_has_one_owner_that_subscribed(
    name: str,
    first: dict[str, frozenset[UUID]],
    second: dict[str, frozenset[UUID]],
    partitions: dict[UUID, int],
) -> None:
    assignor = load_assignor(name)
    before = assignor.assign(spec_of(first, partitions))
    after = assignor.assign(spec_of(second, partitions, before))
    for wanted, assignments in ((first, before), (second, after)):
        assert assignments.keys() == wanted.keys()
        found = owners(assignments)
        subscribed = frozenset[UUID]().union(*wanted.values())
        assert found.keys() == {
            (topic_id, number) for topic_id in subscribed for number in range(partitions[topic_id])
        }
        assert all(topic_id in wanted[owner] for (topic_id, _), owner in found.items())


@given(first=uniform_groups, second=uniform_groups, partitions=counts)
@settings(max_examples=100, deadline=None)
def test_members_with_one_subscription_differ_by_one_partition_at_most(
    first: dict[str, frozenset[UUID]],
    second: dict[str, frozenset[UUID]],
    partitions: dict[UUID, int],
) -> None:
    uniform = load_assignor("uniform")
    before = uniform.assign(spec_of(first, partitions))
    after = uniform.assign(spec_of(second, partitions, before))
    assert max(loads(after)) - min(loads(after)) <= 1


@given(group=mixed_groups | uniform_groups, partitions=counts)
@settings(max_examples=100, deadline=None)
def test_nothing_moves_when_nothing_changed(
    group: dict[str, frozenset[UUID]], partitions: dict[UUID, int]
) -> None:
    uniform = load_assignor("uniform")
    before = uniform.assign(spec_of(group, partitions))
    assert uniform.assign(spec_of(group, partitions, before)) == before


@given(group=uniform_groups, partitions=counts, newcomer=members)
@settings(max_examples=100, deadline=None)
def test_only_what_a_newcomer_gets_moves(
    group: dict[str, frozenset[UUID]], partitions: dict[UUID, int], newcomer: str
) -> None:
    uniform = load_assignor("uniform")
    (topic_ids,) = set(group.values())
    before = uniform.assign(spec_of(group, partitions))
    grown = {**group, newcomer: topic_ids}
    after = uniform.assign(spec_of(grown, partitions, before))
    was, now = owners(before), owners(after)
    assert {now[place] for place in now if now[place] != was[place]} <= {newcomer}


@given(group=uniform_groups, partitions=counts, data=st.data())
@settings(max_examples=100, deadline=None)
def test_only_what_a_leaver_had_moves(
    group: dict[str, frozenset[UUID]], partitions: dict[UUID, int], data: st.DataObject
) -> None:
    leaver = data.draw(st.sampled_from(sorted(group)))
    uniform = load_assignor("uniform")
    before = uniform.assign(spec_of(group, partitions))
    rest = {member: topic_ids for member, topic_ids in group.items() if member != leaver}
    after = uniform.assign(spec_of(rest, partitions, before))
    was, now = owners(before), owners(after)
    assert {was[place] for place in now if now[place] != was[place]} <= {leaver}


@given(group=mixed_groups, partitions=counts)
@settings(max_examples=100, deadline=None)
def test_no_single_move_improves_the_balance_of_members_with_different_subscriptions(
    group: dict[str, frozenset[UUID]], partitions: dict[UUID, int]
) -> None:
    assigned = load_assignor("uniform").assign(spec_of(group, partitions))
    load_of = dict(zip(assigned, loads(assigned), strict=True))
    for (topic_id, _), owner in owners(assigned).items():
        least = min(load_of[MemberId(each)] for each in group if topic_id in group[each])
        assert load_of[owner] - least <= 1


def test_partitions_beyond_the_end_and_claims_of_two_are_dropped() -> None:
    topic_id = TOPICS[0]
    everything = {topic_id: frozenset({0, 1, 2, 7})}
    spec = spec_of(
        dict.fromkeys(("a", "b"), frozenset({topic_id})),
        {topic_id: 3},
        {MemberId("a"): everything, MemberId("b"): everything},
    )
    assert owners(load_assignor("uniform").assign(spec)).keys() == {(topic_id, n) for n in range(3)}


def test_range_gives_the_same_numbers_of_each_topic_and_puts_static_members_first() -> None:
    first, second = TOPICS[:2]
    wanted = dict.fromkeys(("a", "b", "c"), frozenset({first, second}))
    spec = spec_of(wanted, {first: 5, second: 5}, instances={"b": "i2", "c": "i1"})
    assert load_assignor("range").assign(spec) == {
        "c": dict.fromkeys((first, second), frozenset({0, 1})),
        "b": dict.fromkeys((first, second), frozenset({2, 3})),
        "a": dict.fromkeys((first, second), frozenset({4})),
    }


@pytest.mark.parametrize("name", ["uniform", "range"])
@pytest.mark.parametrize("is_mixed", [False, True], ids=["one subscription", "several"])
def test_a_large_group_takes_a_few_milliseconds(name: str, is_mixed: bool) -> None:
    partitions = {UUID(int=number): 100 for number in range(20)}
    rng = random.Random(1)
    topic_ids = list(partitions)
    wanted = {
        f"member-{number:03}": frozenset(rng.sample(topic_ids, 10) if is_mixed else topic_ids)
        for number in range(200)
    }
    assignor = load_assignor(name)
    before = assignor.assign(spec_of(wanted, partitions))
    wanted.popitem()
    spec = spec_of(wanted, partitions, before)
    started = time.process_time()
    after = assignor.assign(spec)
    assert time.process_time() - started < LARGE_GROUP_SECONDS_MAX
    assert len(owners(after)) == 2_000


class EveryoneToTheFirst:
    """A site's own assignor."""

    name = "first"

    def assign(self, spec: AssignmentSpec) -> Any:
        first, *others = sorted(spec.members)
        everything = {topic_id: set(range(count)) for topic_id, count in spec.partitions.items()}
        return {first: everything, **{member: {} for member in others}}


class Nameless:
    name = "other"

    def assign(self, spec: AssignmentSpec) -> Any:
        return {}


class Empty:
    name = "first"


class Broken:
    def __init__(self) -> None:
        raise ValueError("no licence")


def install(monkeypatch: pytest.MonkeyPatch, *classes: str) -> None:
    points = [EntryPoint("first", f"{__name__}:{name}", ENTRY_POINTS) for name in classes]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)


def test_an_entry_point_adds_an_assignor(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "EveryoneToTheFirst")
    loaded = load_assignors(["first", "uniform"])
    assert list(loaded) == ["first", "uniform"]
    spec = spec_of(dict.fromkeys(("a", "b"), frozenset(TOPICS[:1])), {TOPICS[0]: 2})
    assert loaded["first"].assign(spec) == {"a": {TOPICS[0]: frozenset({0, 1})}, "b": {}}


@pytest.mark.parametrize(
    ("classes", "complaint"),
    [
        ((), r"There is no assignor 'first'. These are installed: uniform, range\."),
        (("Missing",), "can't be loaded: AttributeError"),
        (("Broken",), "can't be loaded: ValueError: no licence"),
        (("Empty",), "has no method `assign`"),
        (("Nameless",), "calls itself 'other'"),
        (("Empty", "Broken"), "is installed twice"),
    ],
)
def test_an_assignor_that_cannot_be_used_is_refused_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, classes: tuple[str, ...], complaint: str
) -> None:
    install(monkeypatch, *classes)
    with pytest.raises(Explained, match=complaint):
        load_assignor("first")


A, B = MemberId("a"), MemberId("b")
WANTED, UNWANTED = TOPICS[0], TOPICS[1]


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        (None, "did not return a mapping"),
        ({A: {}}, "did not return just the members"),
        ({A: {WANTED: {0, 1}}, B: {WANTED: {1}}}, f"gave partition 1 of topic {WANTED} to both a"),
        ({A: {WANTED: {0, 1, 2}}, B: {}}, "which does not exist"),
        ({A: {WANTED: {-1}}, B: {}}, "which does not exist"),
        ({A: {WANTED: {0, 1}, UNWANTED: {0}}, B: {}}, "to a, which did not subscribe"),
        ({A: {WANTED: {0}}, B: {}}, "left 1 partitions to nobody"),
        ({A: 3, B: {}}, "failed: AttributeError"),
    ],
)
def test_a_wrong_assignment_is_refused(
    monkeypatch: pytest.MonkeyPatch, returned: Any, complaint: str
) -> None:
    install(monkeypatch, "EveryoneToTheFirst")
    monkeypatch.setattr(EveryoneToTheFirst, "assign", lambda self, spec: returned)
    spec = spec_of(dict.fromkeys((A, B), frozenset({WANTED})), {WANTED: 2, UNWANTED: 1})
    with pytest.raises(Refused, match=complaint) as caught:
        load_assignor("first").assign(spec)
    assert caught.value.reason is Reason.UNKNOWN_SERVER_ERROR


def test_the_assignor_of_the_how_to_page_does_what_the_page_says() -> None:
    page = Document(ROOT / "docs" / "how-to" / "write-an-assignor.md")
    (block,) = page.blocks("python")
    module: dict[str, Any] = {}
    exec(block.text, module)
    standby = GuardedAssignor("standby", module["Standby"]().assign)
    wanted = dict.fromkeys(("a", "b"), frozenset(TOPICS[:2]))
    partitions = {TOPICS[0]: 2, TOPICS[1]: 1}
    first = standby.assign(spec_of(wanted, partitions))
    assert loads(first) == [3, 0]
    assert standby.assign(spec_of({**wanted, "0": frozenset(TOPICS[:2])}, partitions, first)) == {
        **first,
        "0": {},
    }
