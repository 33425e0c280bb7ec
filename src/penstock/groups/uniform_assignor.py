"""The assignor "uniform": members own equally many partitions, and keep what they have.

If all members subscribe to the same topics, their numbers of partitions differ by one at most. If
not, the subscribers of each topic are balanced topic by topic, until nothing moves any more or a
limit of rounds is reached. Balance comes first, then that as few partitions as possible move.

Where Kafka's order depends on a hash, ours is that of the ids: members, then topics, then partition
numbers. For the same order Kafka's "uniform" gives the same assignment.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from penstock.groups.assignors import UNIFORM, Assignment, AssignmentSpec
from penstock.model.ids import MemberId

# Members whose subscriptions overlap only in part may need many rounds for a perfect balance. Each
# round about halves what is left to gain.
ROUNDS_MAX: Final = 16
NOBODY: Final = -1

# The partitions of each topic, in ascending order.
Owned = dict[UUID, list[int]]


class UniformAssignor:
    name = UNIFORM

    def assign(self, spec: AssignmentSpec) -> dict[MemberId, Assignment]:
        if not spec.members:
            return {}
        members = sorted(spec.members)
        owned = _still_valid(spec, members)
        if spec.is_homogeneous:
            _share_out(spec, owned)
        else:
            owned = _Balancing(spec, members, owned).balanced()
        return {
            member: {topic: frozenset(numbers) for topic, numbers in topics.items() if numbers}
            for member, topics in zip(members, owned, strict=True)
        }


def _still_valid(spec: AssignmentSpec, members: Sequence[MemberId]) -> list[Owned]:
    """What the members, in this order, have of the topics they still subscribe to."""
    taken: defaultdict[UUID, set[int]] = defaultdict(set)
    found: list[Owned] = []
    for member in members:
        subscription = spec.members[member]
        owned: Owned = {}
        for topic_id in sorted(subscription.assigned.keys() & subscription.topic_ids):
            count = spec.partitions.get(topic_id, 0)
            claimed = subscription.assigned[topic_id] - taken[topic_id]
            owned[topic_id] = sorted(number for number in claimed if number < count)
            taken[topic_id].update(owned[topic_id])
        found.append(owned)
    return found


def _share_out(spec: AssignmentSpec, owned: list[Owned]) -> None:
    """Members with the same subscription: those with too many give up, those with too few take."""
    topic_ids = next(iter(spec.members.values())).topic_ids
    free = _unowned({topic_id: spec.partitions.get(topic_id, 0) for topic_id in topic_ids}, owned)
    each, extras = divmod(
        len(free) + sum(len(numbers) for topics in owned for numbers in topics.values()), len(owned)
    )
    wanting: list[tuple[Owned, int]] = []
    for position, topics in enumerate(owned):
        room = _give_up(topics, each + (extras > 0), free)
        # One of the extra partitions is left to a later member that may have one already, as long
        # as there are enough later members.
        if extras > 0 and not (room > 0 and len(owned) - position > extras):
            extras -= 1
        elif extras > 0:
            room -= 1
        if room > 0:
            wanting.append((topics, room))
    _hand_out(free, wanting)


def _unowned(partitions: Mapping[UUID, int], owned: Iterable[Owned]) -> list[tuple[UUID, int]]:
    taken: defaultdict[UUID, set[int]] = defaultdict(set)
    for topics in owned:
        for topic_id, numbers in topics.items():
            taken[topic_id].update(numbers)
    return [
        (topic_id, number)
        for topic_id in sorted(partitions)
        for number in range(partitions[topic_id])
        if number not in taken[topic_id]
    ]


def _give_up(topics: Owned, quota: int, free: list[tuple[UUID, int]]) -> int:
    """Cuts what is above the quota off; how many partitions are missing to it."""
    room = quota
    for topic_id, numbers in topics.items():
        free.extend((topic_id, number) for number in numbers[room:])
        del numbers[room:]
        room -= len(numbers)
    return room


def _hand_out(free: list[tuple[UUID, int]], wanting: list[tuple[Owned, int]]) -> None:
    left = iter(free)
    for topics, room in wanting:
        for _, (topic_id, number) in zip(range(room), left, strict=False):
            topics.setdefault(topic_id, []).append(number)
    assert next(left, None) is None, "a partition was left without an owner"


class _Balancing:
    """Members with different subscriptions. They are numbered in the order of their ids."""

    def __init__(
        self, spec: AssignmentSpec, members: Sequence[MemberId], owned: Iterable[Owned]
    ) -> None:
        self._subscribers: dict[UUID, list[int]] = {}
        for member, member_id in enumerate(members):
            for topic_id in spec.members[member_id].topic_ids & spec.partitions.keys():
                self._subscribers.setdefault(topic_id, []).append(member)
        self._owners = {
            topic_id: [NOBODY] * spec.partitions[topic_id] for topic_id in self._subscribers
        }
        self._loads = [0] * len(members)
        for member, topics in enumerate(owned):
            for topic_id, numbers in topics.items():
                for number in numbers:
                    self._give(topic_id, number, member)

    def balanced(self) -> list[Owned]:
        topic_ids = sorted(self._subscribers, key=self._urgency)
        for topic_id in topic_ids:
            self._assign_rest(topic_id)
        self._balance([each for each in topic_ids if len(self._subscribers[each]) > 1])
        found: list[Owned] = [{} for _ in self._loads]
        for topic_id, owners in self._owners.items():
            for number, member in enumerate(owners):
                found[member].setdefault(topic_id, []).append(number)
        return found

    def _urgency(self, topic_id: UUID) -> tuple[float, int, UUID]:
        """Topics with many partitions for few subscribers go first: others can level them out."""
        subscriber_count = len(self._subscribers[topic_id])
        return -len(self._owners[topic_id]) / subscriber_count, subscriber_count, topic_id

    def _assign_rest(self, topic_id: UUID) -> None:
        free = [number for number, owner in enumerate(self._owners[topic_id]) if owner == NOBODY]
        if not free:
            return
        takers = _Takers(self._by_load(topic_id), self._loads)
        for number in free:
            self._give(topic_id, number, takers.next())

    def _balance(self, topic_ids: Sequence[UUID]) -> None:
        """Ends when a whole round has moved nothing."""
        last_moved: UUID | None = None
        for _ in range(ROUNDS_MAX):
            for topic_id in topic_ids:
                if topic_id == last_moved:
                    return
                if self._balance_topic(topic_id) or last_moved is None:
                    last_moved = topic_id

    def _balance_topic(self, topic_id: UUID) -> bool:
        """Moves partitions from those with the most to those with the least; whether any moved."""
        order = self._by_load(topic_id)
        if self._loads[order[-1]] - self._loads[order[0]] <= 1:
            return False
        numbers_of: defaultdict[int, list[int]] = defaultdict(list)
        for number, owner in enumerate(self._owners[topic_id]):
            numbers_of[owner].append(number)
        givers, takers = _Givers(order, self._loads, numbers_of), _Takers(order, self._loads)
        has_moved = False
        while (giver := givers.next()) is not None:
            # Only what a member had before can move, or partitions would go round in circles.
            number, taker = numbers_of[giver].pop(), takers.next()
            if self._loads[giver] - self._loads[taker] <= 1:
                break
            self._give(topic_id, number, taker)
            has_moved = True
        return has_moved

    def _by_load(self, topic_id: UUID) -> list[int]:
        return sorted(self._subscribers[topic_id], key=lambda member: (self._loads[member], member))

    def _give(self, topic_id: UUID, number: int, member: int) -> None:
        owners = self._owners[topic_id]
        if owners[number] != NOBODY:
            self._loads[owners[number]] -= 1
        owners[number] = member
        self._loads[member] += 1


class _Takers:
    """The member with the fewest partitions, again and again; each is then counted as one up."""

    def __init__(self, order: Sequence[int], loads: Sequence[int]) -> None:
        # A sorted list is a heap.
        self._heap = [(loads[member], position, member) for position, member in enumerate(order)]

    def next(self) -> int:
        load, position, member = self._heap[0]
        heapq.heapreplace(self._heap, (load + 1, position, member))
        return member


class _Givers:
    """The member with the most partitions, again and again, of those that have any of a topic.

    Members on the highest level are a range of the list; it is passed from its end to its start.
    After a pass all of them are one lower, and the range grows by those who were there already. A
    member with nothing to give is swapped to the end of the range, which ends before it from then.
    """

    def __init__(
        self, order: Sequence[int], loads: Sequence[int], numbers_of: Mapping[int, Sequence[int]]
    ) -> None:
        self._order = list(order)
        self._loads = loads
        self._numbers_of = numbers_of
        self._start = self._end = len(order)
        self._level = loads[order[-1]] + 1
        self._at = len(order) - 1

    def next(self) -> int | None:
        while True:
            if self._at < self._start:
                self._lower()
            if self._at < 0:
                return None
            member = self._order[self._at]
            self._at -= 1
            if self._numbers_of.get(member):
                return member
            self._exclude(self._at + 1)

    def _lower(self) -> None:
        if self._end <= self._start and self._start > 0:
            self._level = self._loads[self._order[self._start - 1]]
        else:
            self._level -= 1
        while self._start > 0 and self._loads[self._order[self._start - 1]] == self._level:
            self._start -= 1
        self._at = self._end - 1

    def _exclude(self, position: int) -> None:
        self._end -= 1
        order = self._order
        order[position], order[self._end] = order[self._end], order[position]
