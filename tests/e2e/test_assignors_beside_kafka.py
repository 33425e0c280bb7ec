"""The assignors of consumer groups and of share groups give what those of Apache Kafka give."""

import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from penstock.groups.assignors import (
    AssignmentSpec,
    MemberSubscription,
    load_assignor,
    load_share_assignors,
)
from penstock.model.ids import MemberId
from tests.e2e.clients.java import Java

pytest_plugins = ["tests.e2e.clients.java.fixtures"]

ROUNDS = 150
CHANGES = 4


@pytest.mark.parametrize("name", ["uniform", "range"])
def test_assignments_equal_those_of_kafka_over_many_changes(java: Java, name: str) -> None:
    """Each group goes through some changes; an assignment is where the next one starts."""
    groups = [Group(random.Random(seed), name) for seed in range(ROUNDS)]
    for _ in range(CHANGES):
        specs = [group.spec() for group in groups]
        theirs = java.call("assign", "", specs=[as_json(name, spec) for spec in specs])
        for group, spec, answer in zip(groups, specs, theirs, strict=True):
            ours = load_assignor(name).assign(spec)
            assert plain(ours) == {member: answer.get(member, {}) for member in spec.members}, spec
            group.assigned = ours
            group.change()


def test_assignments_of_share_groups_equal_those_of_kafka(java: Java) -> None:
    """Also where Kafka goes by the order of its hash tables, of any size."""
    groups: list[Group] = [ShareGroup(random.Random(seed), "simple") for seed in range(ROUNDS)]
    assignor = load_share_assignors(["simple"])["simple"]
    shared = 0
    for _ in range(CHANGES):
        specs = [group.spec() for group in groups]
        theirs = java.call("assign", "", specs=[as_json("simple", spec) for spec in specs])
        for group, spec, answer in zip(groups, specs, theirs, strict=True):
            ours = assignor.assign(spec)
            # Kafka keeps topics of which a member has lost all partitions.
            kept = {m: {t: ps for t, ps in topics.items() if ps} for m, topics in answer.items()}
            assert plain(ours) == {member: kept.get(member, {}) for member in spec.members}, spec
            shared += len(set(places(ours))) < len(places(ours))
            group.assigned = ours
            group.change()
    assert shared > ROUNDS, "few groups have more members than partitions"


def places(assignments: Any) -> list[tuple[UUID, int]]:
    each = assignments.values()
    return [(topic, n) for given in each for topic, numbers in given.items() for n in numbers]


class Group:
    """Members that come, go and change what they subscribe to, and topics that grow."""

    def __init__(self, rng: random.Random, assignor: str) -> None:
        self.rng = rng
        self.assignor = assignor
        self.partitions = {UUID(int=n): rng.randint(1, 14) for n in range(1, rng.randint(2, 7))}
        self.wanted: dict[MemberId, frozenset[UUID]] = {}
        self.assigned: Any = {}
        self.is_alike = rng.random() < 0.4
        for _ in range(rng.randint(1, 9)):
            self.join()

    def join(self) -> None:
        kinds = list(self.wanted.values())
        if self.is_alike and kinds:
            wanted = kinds[0]
        else:
            topic_ids = list(self.partitions)
            wanted = frozenset(self.rng.sample(topic_ids, self.rng.randint(1, len(topic_ids))))
        self.wanted[MemberId(f"m-{self.rng.randrange(10**6)}")] = wanted

    def change(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(0, 3)):
            self.join()
        leaving = rng.sample(list(self.wanted), min(rng.randint(0, 2), len(self.wanted) - 1))
        for member in leaving:
            del self.wanted[member]
        if rng.random() < 0.3:
            self.partitions[rng.choice(list(self.partitions))] += rng.randint(1, 5)
        if rng.random() < 0.3 and not self.is_alike:
            topic_ids = list(self.partitions)
            wanted = frozenset(rng.sample(topic_ids, rng.randint(1, len(topic_ids))))
            self.wanted[rng.choice(list(self.wanted))] = wanted

    def spec(self) -> AssignmentSpec:
        members = {
            member: MemberSubscription(
                instance_id=f"i{member[::-1]}" if hash_of(member) % 3 == 0 else None,
                topic_ids=wanted,
                assigned=self.assigned.get(member, {}),
            )
            for member, wanted in self.wanted.items()
        }
        is_homogeneous = len(set(self.wanted.values())) == 1
        return AssignmentSpec(
            members=members, partitions=dict(self.partitions), is_homogeneous=is_homogeneous
        )


class ShareGroup(Group):
    """One whose topics have ids of any kind, and whose partitions are ready one after the other."""

    def __init__(self, rng: random.Random, assignor: str) -> None:
        super().__init__(rng, assignor)
        ids = {topic: UUID(int=rng.getrandbits(63)) for topic in self.partitions}
        self.partitions = {ids[topic]: count for topic, count in self.partitions.items()}
        self.wanted = {m: frozenset(ids[t] for t in topics) for m, topics in self.wanted.items()}
        self.ready: dict[UUID, frozenset[int]] = {}
        for _ in range(rng.choice((0, 0, 10, 30))):
            self.join()

    def spec(self) -> AssignmentSpec:
        for topic, count in self.partitions.items():
            before = self.ready.get(topic, frozenset())
            more = (n for n in range(count) if self.rng.random() < 0.8)
            self.ready[topic] = before.union(more)
        return replace(super().spec(), assignable=dict(self.ready))


def hash_of(member: MemberId) -> int:
    return int(member.removeprefix("m-"))


def as_json(name: str, spec: AssignmentSpec) -> dict[str, Any]:
    ready = spec.assignable
    assignable = None if ready is None else {t.int: sorted(ps) for t, ps in ready.items()}
    return {
        **({} if assignable is None else {"assignable": assignable}),
        "assignor": name,
        "homogeneous": spec.is_homogeneous,
        "partitions": {topic_id.int: count for topic_id, count in spec.partitions.items()},
        "members": {
            member: {
                "instance": each.instance_id,
                "topics": [topic_id.int for topic_id in each.topic_ids],
                "assigned": {
                    topic_id.int: sorted(partitions)
                    for topic_id, partitions in each.assigned.items()
                },
            }
            for member, each in spec.members.items()
        },
    }


def plain(assignments: Any) -> dict[str, dict[str, list[int]]]:
    return {
        member: {str(topic_id.int): sorted(numbers) for topic_id, numbers in assignment.items()}
        for member, assignment in assignments.items()
    }
