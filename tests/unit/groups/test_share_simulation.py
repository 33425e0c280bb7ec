"""Members of a share group that come, go, miss answers and are fenced, while queues are made beside
them, at random; the coordinator is replaced in between.

Whatever happens, nobody is told of a partition whose queue is not there, queues start where they
shall, what is written is what a replay of it gives, also after compaction, and a group that is left
in peace settles with every partition in use, evenly.
"""

import random
from uuid import UUID

import pytest

from penstock.groups.commands import ConsumerAnswer
from penstock.groups.modern_group import ModernState
from penstock.groups.modern_records import ModernRecord, NamedTopics
from penstock.groups.records import GroupRecordCodec
from penstock.groups.share_decisions import (
    AT_BEGINNING,
    BY_SETTING,
    forgotten,
    initialized,
    initializing,
    missing_queues,
    starts_of,
)
from penstock.groups.share_group import ShareGroup
from penstock.groups.state import GroupsState
from penstock.model.errors import Reason, Refused
from penstock.model.ids import MemberId
from tests.unit.groups.share_rig import GROUP, ShareRig

MEMBERS_MAX = 7
STEPS = 250
LOST_CHANCE = 0.15
_BEGIN_AGAIN = (Reason.FENCED_MEMBER_EPOCH, Reason.UNKNOWN_MEMBER_ID)


class Client:
    """Uses what it was told, at once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.topics: frozenset[str] = frozenset()
        self.used: dict[UUID, frozenset[int]] = {}
        self.is_owed_full = True

    def begin_again(self) -> None:
        self.epoch, self.used, self.is_owed_full = 0, {}, True

    def take(self, answer: ConsumerAnswer) -> None:
        assert answer.member_epoch >= self.epoch, "an epoch went back"
        self.epoch, self.is_owed_full = answer.member_epoch, False
        if answer.assignment is not None:
            self.used = dict(answer.assignment)


class Model:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rig = ShareRig(t=4, u=2, uu=1)
        self.clients: dict[str, Client] = {}
        self.names = 0
        # What keeps the queues knows: where each starts. It never changes.
        self.queues: dict[tuple[UUID, int], int] = {}
        # Topics that the group has met, with the partitions that it met at first.
        self.met: dict[UUID, frozenset[int]] = {}
        self.asked: NamedTopics = {}
        self.is_in_peace = False

    def step(self) -> None:
        act = self.chance.choices(
            [
                self.beat,
                self.work_on_queues,
                self.arrive,
                self.leave,
                self.vanish,
                self.resubscribe,
                self.change_topics,
                self.restart,
            ],
            [60, 12, 8, 4, 3, 5, 3, 2],
        )[0]
        act()

    def pick(self) -> Client | None:
        return self.chance.choice(list(self.clients.values())) if self.clients else None

    # Members

    def arrive(self) -> None:
        if len(self.clients) < MEMBERS_MAX:
            self.names += 1
            client = Client(f"m{self.names}")
            self.subscribe(client)
            self.clients[client.name] = client

    def subscribe(self, client: Client) -> None:
        wanted = self.chance.choice([("t",), ("t", "u"), ("t", "u"), ("u", "uu", "new")])
        client.topics = frozenset(wanted)

    def resubscribe(self) -> None:
        client = self.pick()
        if client is not None:
            self.subscribe(client)
            client.is_owed_full = True

    def beat(self) -> None:
        client = self.pick()
        if client is not None:
            self.beat_of(client, lost_chance=LOST_CHANCE)

    def beat_of(self, client: Client, lost_chance: float) -> None:
        fields: dict[str, object] = {}
        if client.is_owed_full or self.chance.random() < 0.1:
            fields["topics"] = client.topics
        known = self.rig.group.member(MemberId(client.name))
        try:
            answer = self.rig.heartbeat(client.name, client.epoch, **fields)
        except Refused as refused:
            if refused.reason not in _BEGIN_AGAIN:
                raise
            client.begin_again()
            return
        if known is not None and client.epoch:
            may_be = (known.current.epoch, known.current.previous_epoch)
            assert client.epoch in may_be, "a member of an older epoch was let in"
        self.check_told(answer)
        if self.chance.random() < lost_chance:
            client.is_owed_full = True
        else:
            client.take(answer)

    def check_told(self, answer: ConsumerAnswer) -> None:
        for topic_id, partitions in (answer.assignment or {}).items():
            assert partitions, "a topic without partitions"
            for partition in partitions:
                assert (topic_id, partition) in self.queues, "a partition without a queue"

    def leave(self) -> None:
        client = self.pick()
        if client is not None and client.epoch:
            del self.clients[client.name]
            try:
                self.rig.heartbeat(client.name, -1)
            except Refused as refused:
                if refused.reason is not Reason.UNKNOWN_MEMBER_ID:
                    raise

    def vanish(self) -> None:
        """Its session ends; it may still be there."""
        client = self.pick()
        if client is not None and client.name in self.rig.group.profiles:
            if self.chance.random() < 0.5:
                del self.clients[client.name]
            self.rig.fence(client.name)

    # Queues

    def work_on_queues(self) -> None:
        if self.asked:
            self.end_work()
        elif asked := missing_queues(self.rig.group, self.rig.catalog):
            starts = starts_of(self.rig.group, asked)
            self.rig.apply([initializing(self.rig.group, asked)])
            self.asked = asked
            if self.is_in_peace or self.chance.random() < 0.8:
                self.make(starts)

    def make(self, starts: dict[UUID, dict[int, int]]) -> None:
        for topic_id, of_topic in starts.items():
            first = self.met.setdefault(topic_id, frozenset(of_topic))
            for partition, start in of_topic.items():
                expected = BY_SETTING if partition in first else AT_BEGINNING
                if self.queues.setdefault((topic_id, partition), start) == start:
                    assert start == expected, f"{partition} starts at {start}"

    def end_work(self) -> None:
        asked, self.asked = self.asked, {}
        is_made = all((t, n) in self.queues for t, (_, ns) in asked.items() for n in ns)
        there = frozenset(t for t in asked if self.rig.catalog.find_by_id(t))
        if is_made:
            self.rig.apply([initialized(self.rig.group, asked, there)])
        self.rig.is_stale = True

    def change_topics(self) -> None:
        name = self.chance.choice(["t", "u", "new"])
        topic = self.rig.catalog.find(name)
        if topic is None:
            self.rig.catalog.make(name, 2)
        elif self.chance.random() < 0.7:
            self.rig.catalog.grow(name, topic.partitions + 1)
        else:
            del self.rig.catalog.topics[name]
            if record := forgotten(self.rig.group, lambda topic_id: topic_id == topic.topic_id):
                self.rig.apply([record])
        self.rig.is_stale = True

    def restart(self) -> None:
        """Another coordinator goes on from what is stored, without the work that was under way."""
        self.rig.group = replayed(self.rig.log)
        self.rig.is_stale, self.asked = True, {}

    # In peace

    def settle(self) -> None:
        self.is_in_peace = True
        for _ in range(12):
            known = {client.name for client in self.clients.values()}
            gone = [name for name in self.rig.group.profiles if name not in known]
            if gone:
                self.rig.fence(*gone)
            for client in self.clients.values():
                client.is_owed_full = True
                self.beat_of(client, lost_chance=0)
            self.work_on_queues()

    def check_settled(self) -> None:
        assert self.rig.group.state is ModernState.STABLE
        users: dict[tuple[UUID, int], int] = {}
        for client in self.clients.values():
            topics = map(self.rig.catalog.find, client.topics)
            own = {topic.topic_id for topic in topics if topic is not None}
            assert client.used.keys() <= own, "a member uses what it does not read"
            for topic_id, partitions in client.used.items():
                for partition in partitions:
                    users[topic_id, partition] = users.get((topic_id, partition), 0) + 1
        subscribed = map(self.rig.catalog.find, self.rig.group.subscribed_topics())
        wanted = {(t.topic_id, n) for t in subscribed if t is not None for n in range(t.partitions)}
        assert users.keys() == wanted
        if self.rig.group.is_homogeneous and users:
            counts = [sum(map(len, each.used.values())) for each in self.clients.values()]
            assert max(counts) - min(counts) <= 1, counts


def replayed(records: list[ModernRecord]) -> ShareGroup:
    state = GroupsState()
    for record in records:
        state.apply(record)
    restored = GroupsState()
    restored.restore(state.snapshot()())
    return restored.share(GROUP) or ShareGroup(GROUP)


def latest_of_each_key(records: list[ModernRecord]) -> list[ModernRecord]:
    codec = GroupRecordCodec()
    latest: dict[bytes | None, ModernRecord] = {}
    for record in records:
        key, _ = codec.encode(record)
        latest.pop(key, None)
        latest[key] = record
    return list(latest.values())


def contents(group: ShareGroup) -> tuple[object, ...]:
    """All that a group is, and not by its `records`, which a snapshot is made of."""
    return (
        group.epoch,
        group.metadata_hash,
        group.target_epoch,
        group.profiles,
        group.currents,
        group.targets,
        group.queues,
    )


@pytest.mark.parametrize("seed", range(60))
def test_a_share_group_is_right_whatever_happens(seed: int) -> None:
    check_seed(seed)


def check_seed(seed: int) -> None:
    model = Model(seed)
    for _ in range(STEPS):
        model.step()
    for records in (model.rig.log, latest_of_each_key(model.rig.log)):
        group = replayed(records)
        group.validate()
        assert contents(group) == contents(model.rig.group)
    model.settle()
    if model.clients:
        model.check_settled()
