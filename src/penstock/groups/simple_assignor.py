"""The assignor "simple" of share groups (KIP-932), with the results of Kafka's.

Members may have the same partition. Every partition shall have equally many members, at least one,
and every member equally many partitions; within that, members keep what they have. When all of them
read the same topics, the partitions of all topics are dealt out together, otherwise topic by topic.

Where it does not matter who gives a partition up or gets it, Kafka goes by the order of its hash
tables, and so does this: a group has the same assignment on both.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar
from uuid import UUID

from penstock.groups.assignors import SIMPLE, Assignment, AssignmentSpec
from penstock.model.ids import MemberId

# Of Java's hash tables: the slots of one that was made without a size, and how full one gets.
DEFAULT_SLOTS: Final = 16
LOAD: Final = 0.75
_INT32: Final = 0xFFFF_FFFF

P = TypeVar("P", bound=Hashable)
Place = tuple[UUID, int]


class SimpleAssignor:
    name = SIMPLE

    def assign(self, spec: AssignmentSpec) -> dict[MemberId, Assignment]:
        members = sorted(spec.members)
        topic_ids = frozenset[UUID]().union(*(each.topic_ids for each in spec.members.values()))
        if not topic_ids:
            return {member_id: {} for member_id in members}
        if spec.is_homogeneous:
            return _assign_all_at_once(spec, members, topic_ids)
        return _assign_by_topic(spec, members, topic_ids)


def _assign_all_at_once(
    spec: AssignmentSpec, members: Sequence[MemberId], topic_ids: Iterable[UUID]
) -> dict[MemberId, Assignment]:
    ordered = sorted(topic_ids)
    places = [(topic_id, part) for topic_id in ordered for part in _assignable(spec, topic_id)]
    deal = _Deal(places, range(len(members)), _hash_of_place)
    for index, member_id in enumerate(members):
        assigned = spec.members[member_id].assigned
        for topic_id in ordered:
            for partition in sorted(assigned.get(topic_id, ())):
                deal.keep(index, (topic_id, partition))
    held = deal.end()
    return {member_id: _by_topic(held.get(index, ())) for index, member_id in enumerate(members)}


def _assign_by_topic(
    spec: AssignmentSpec, members: Sequence[MemberId], topic_ids: Iterable[UUID]
) -> dict[MemberId, Assignment]:
    """What somebody has of a topic that nobody reads any more stays in the target, as in Kafka. It
    is not handed to the member, which does not read it either."""
    given = {member_id: dict(spec.members[member_id].assigned) for member_id in members}
    for topic_id in sorted(topic_ids):
        readers = [i for i, each in enumerate(members) if topic_id in spec.members[each].topic_ids]
        deal = _Deal(_assignable(spec, topic_id), readers, lambda partition: partition)
        for index, member_id in enumerate(members):
            for partition in sorted(given[member_id].pop(topic_id, ())):
                deal.keep(index, partition)
        for index, partitions in deal.end().items():
            if partitions:
                given[members[index]][topic_id] = frozenset(partitions)
    return dict(given)


def _assignable(spec: AssignmentSpec, topic_id: UUID) -> list[int]:
    every = range(spec.partitions.get(topic_id, 0))
    if spec.assignable is None:
        return list(every)
    ready = spec.assignable.get(topic_id, frozenset())
    return [partition for partition in every if partition in ready]


def _by_topic(places: Iterable[Place]) -> Assignment:
    topics: dict[UUID, set[int]] = {}
    for topic_id, partition in places:
        topics.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}


class _Deal(Generic[P]):
    """Deals places out to some of the members, which are numbers here."""

    def __init__(
        self, places: Sequence[P], readers: Sequence[int], hash_of: Callable[[P], int]
    ) -> None:
        self._places = places
        self._hash_of = hash_of
        # How many members each place shall have, and how many places each member.
        self._sharing = -(-len(readers) // len(places)) if places else 0
        share = self._sharing * len(places) / len(readers)
        self._shares = {
            reader: math.ceil(share * (n + 1)) - math.ceil(share * n)
            for n, reader in enumerate(readers)
        }
        self._holders = _Table[P, _Table[int, None]](hash_of, _slots_for(len(places)))
        self._held: dict[int, _Table[P, None]] = {}

    def keep(self, member: int, place: P) -> None:
        self._holders.setdefault(place, self._no_members)[member] = None
        self._held.setdefault(member, _Table(self._hash_of))[place] = None

    def _no_members(self) -> "_Table[int, None]":
        return _Table(lambda member: member)

    def end(self) -> dict[int, set[P]]:
        """What each member has in the end."""
        self._take_from_the_rich()
        self._take_from_the_shared()
        for place in self._places:
            self._holders.setdefault(place, self._no_members)
        self._give()
        return {member: set(places.in_order()) for member, places in self._held.items()}

    def _take_from_the_rich(self) -> None:
        for member, places in self._held.items():
            surplus = len(places) - self._shares.get(member, 0)
            for place in list(places.in_order())[: max(surplus, 0)]:
                self._take(member, place)

    def _take_from_the_shared(self) -> None:
        for place in list(self._holders.in_order()):
            members = self._holders[place]
            surplus = len(members) - self._sharing
            for member in list(members.in_order())[: max(surplus, 0)]:
                self._take(member, place)

    def _take(self, member: int, place: P) -> None:
        del self._held[member][place]
        del self._holders[place][member]

    def _give(self) -> None:
        """Once through the places, and around through the members that have too little. When a
        whole round gave nothing, the rest stays as it is: a little out of balance."""
        poor = {m: None for m, share in sorted(self._shares.items()) if self._count(m) < share}
        left, has_given = iter(list(poor)), False
        for place in self._holders.in_order():
            members = self._holders[place]
            while len(members) < self._sharing:
                member = next(left, None)
                if member is None:
                    if not has_given or not poor:
                        break
                    left, has_given = iter(list(poor)), False
                    continue
                if member not in members:
                    self.keep(member, place)
                    has_given = True
                    if self._count(member) >= self._shares[member]:
                        del poor[member]

    def _count(self, member: int) -> int:
        return len(self._held.get(member, ()))


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Table(Generic[K, V]):
    """A dictionary with the order of Java's hash tables: by slot. Within one, what was put there
    goes by arrival, and what was computed there (`setdefault`) the other way around."""

    def __init__(self, hash_of: Callable[[K], int], slots: int = DEFAULT_SLOTS) -> None:
        self._hash_of = hash_of
        self._slots = slots
        self._items: dict[K, V] = {}
        self._computed: list[K] = []

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: K) -> bool:
        return key in self._items

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __setitem__(self, key: K, value: V) -> None:
        self._items[key] = value
        self._grow()

    def __delitem__(self, key: K) -> None:
        del self._items[key]

    def setdefault(self, key: K, make: Callable[[], V]) -> V:
        if key not in self._items:
            self._grow()
            self._items[key] = make()
            self._computed.append(key)
        return self._items[key]

    def _grow(self) -> None:
        """With what it holds; it never shrinks."""
        while len(self._items) > self._slots * LOAD:
            self._slots *= 2

    def in_order(self) -> Iterator[K]:
        arrived = reversed(self._computed) if self._computed else self._items
        return iter(sorted(arrived, key=self._slot_of))

    def _slot_of(self, key: K) -> int:
        value = self._hash_of(key) & _INT32
        return (value ^ value >> 16) & (self._slots - 1)


def _slots_for(count: int) -> int:
    """Of a table that Kafka makes for so many things."""
    return 1 << (int((count + 1) / LOAD + 1) - 1).bit_length()


def _hash_of_place(place: Place) -> int:
    topic_id, partition = place
    both = (topic_id.int >> 64) ^ topic_id.int
    return 31 * ((both >> 32 ^ both) & _INT32) + partition
