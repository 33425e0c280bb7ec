"""The assignors of the new consumer protocol give what those of Apache Kafka give."""

import random
from typing import Any
from uuid import UUID

import pytest

from penstock.groups.assignors import AssignmentSpec, MemberSubscription, load_assignor
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


def hash_of(member: MemberId) -> int:
    return int(member.removeprefix("m-"))


def as_json(name: str, spec: AssignmentSpec) -> dict[str, Any]:
    return {
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
