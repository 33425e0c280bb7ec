"""Members of a consumer group that come, go, restart, miss answers and are fenced, at random.

Whatever happens, no partition is used by two clients at once, what is written is what a replay of
it gives, also after compaction, and a group that is left in peace settles with every partition in
use.
"""

import random
from uuid import UUID

import pytest

from penstock.groups.commands import ConsumerAnswer
from penstock.groups.modern_group import ModernGroup, ModernState
from penstock.groups.modern_records import ModernRecord
from penstock.groups.records import GroupRecordCodec
from penstock.groups.state import GroupsState
from penstock.model.errors import Reason, Refused
from tests.unit.groups.consumer_rig import GROUP, REBALANCE_MS, ConsumerRig

MEMBERS_MAX = 6
STEPS = 250
LOST_CHANCE = 0.15
_BEGIN_AGAIN = (Reason.FENCED_MEMBER_EPOCH, Reason.UNKNOWN_MEMBER_ID)


class Client:
    """Uses what it was told, gives up what it was not, and says what it uses."""

    def __init__(self, name: str, instance_id: str | None) -> None:
        self.name = name
        self.instance_id = instance_id
        self.epoch = 0
        self.topics: frozenset[str] = frozenset()
        self.expression: str | None = None
        self.used: dict[UUID, frozenset[int]] = {}
        # What it was told and has not done yet.
        self.told: dict[UUID, frozenset[int]] | None = None
        self.is_owed_full = True

    def obey(self) -> None:
        if self.told is not None:
            self.used, self.told = self.told, None

    def begin_again(self) -> None:
        self.epoch, self.used, self.told, self.is_owed_full = 0, {}, None, True

    def take(self, answer: ConsumerAnswer) -> None:
        self.epoch, self.is_owed_full = answer.member_epoch, False
        if answer.assignment is not None:
            self.told = dict(answer.assignment)
            # Giving up comes first, and using what is new only after that.
            self.used = {t: self.used[t] & ps for t, ps in self.told.items() if t in self.used}


class Model:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rig = ConsumerRig(t=5, u=3, uu=1)
        self.clients: dict[str, Client] = {}
        self.names = 0

    def step(self) -> None:
        act = self.chance.choices(
            [self.beat, self.arrive, self.leave, self.vanish, self.resubscribe, self.change_topics],
            [70, 8, 4, 3, 5, 3],
        )[0]
        act()
        self.check()

    def pick(self) -> Client | None:
        return self.chance.choice(list(self.clients.values())) if self.clients else None

    def arrive(self) -> None:
        if len(self.clients) >= MEMBERS_MAX:
            return
        self.names += 1
        client = Client(f"m{self.names}", None)
        if self.chance.random() < 0.3:
            client.instance_id = f"i{self.chance.randrange(3)}"
            if any(each.instance_id == client.instance_id for each in self.clients.values()):
                return
        self.subscribe(client)
        self.clients[client.name] = client

    def subscribe(self, client: Client) -> None:
        if self.chance.random() < 0.3:
            client.topics, client.expression = frozenset(), self.chance.choice(["u", "t"])
        else:
            wanted = self.chance.choice([("t",), ("t", "u"), ("u", "uu", "new")])
            client.topics, client.expression = frozenset(wanted), ""

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
        if self.chance.random() < 0.7:
            client.obey()
        fields: dict[str, object] = {"instance_id": client.instance_id}
        is_full = client.is_owed_full or self.chance.random() < 0.1
        if is_full or self.chance.random() < 0.7:
            fields["owned"] = dict(client.used) if client.epoch else {}
        if is_full:
            fields["rebalance_timeout_ms"] = REBALANCE_MS
            fields["topics"], fields["expression"] = client.topics, client.expression
        try:
            answer = self.rig.heartbeat(client.name, client.epoch, **fields)
        except Refused as refused:
            if refused.reason in _BEGIN_AGAIN:
                client.begin_again()
            elif refused.reason is not Reason.UNRELEASED_INSTANCE_ID:
                # Its instance has not left yet, as far as the group knows.
                raise
            return
        if self.chance.random() < lost_chance:
            client.is_owed_full = True
        else:
            client.take(answer)

    def leave(self) -> None:
        client = self.pick()
        if client is None or not client.epoch:
            return
        epoch = -2 if client.instance_id and self.chance.random() < 0.7 else -1
        del self.clients[client.name]
        try:
            self.rig.heartbeat(client.name, epoch, instance_id=client.instance_id)
        except Refused as refused:
            if refused.reason is not Reason.UNKNOWN_MEMBER_ID:
                raise

    def vanish(self) -> None:
        """Its session ends; it may still be there, but has stopped using anything by then."""
        client = self.pick()
        if client is not None and client.name in self.rig.group.profiles:
            client.used, client.told = {}, None
            if self.chance.random() < 0.5:
                del self.clients[client.name]
            self.rig.fence(client.name)

    def change_topics(self) -> None:
        name = self.chance.choice(["t", "u", "new"])
        topic = self.rig.catalog.find(name)
        if topic is None:
            self.rig.catalog.make(name, 2)
        elif self.chance.random() < 0.5:
            self.rig.catalog.grow(name, topic.partitions + 1)
        else:
            del self.rig.catalog.topics[name]
        self.rig.is_stale = True

    def check(self) -> None:
        users: dict[tuple[UUID, int], str] = {}
        for client in self.clients.values():
            for topic_id, partitions in client.used.items():
                for partition in partitions:
                    other = users.setdefault((topic_id, partition), client.name)
                    assert other == client.name, f"{other} and {client.name} use {partition}"

    def settle(self) -> None:
        """Everybody beats, nothing is lost, and nobody comes or goes."""
        for _ in range(8):
            self._end_sessions()
            for client in self.clients.values():
                client.obey()
                client.is_owed_full = True
                self.beat_of(client, lost_chance=0)
                self.check()
        for client in self.clients.values():
            client.obey()
        self.check()

    def _end_sessions(self) -> None:
        """An instance that was fenced and does not know its epoch gets in only after its end."""
        known = {c.name for c in self.clients.values() if c.epoch or c.instance_id is None}
        gone = [name for name in self.rig.group.profiles if name not in known]
        if gone:
            self.rig.fence(*gone)

    def used(self) -> int:
        return sum(len(ps) for client in self.clients.values() for ps in client.used.values())

    def subscribed(self) -> int:
        topics = map(self.rig.catalog.find, self.rig.group.subscribed_topics())
        return sum(topic.partitions for topic in topics if topic is not None)


def latest_of_each_key(records: list[ModernRecord]) -> list[ModernRecord]:
    codec = GroupRecordCodec()
    latest: dict[bytes | None, ModernRecord] = {}
    for record in records:
        key, _ = codec.encode(record)
        latest.pop(key, None)
        latest[key] = record
    return list(latest.values())


def replayed(records: list[ModernRecord]) -> ModernGroup:
    state = GroupsState()
    for record in records:
        state.apply(record)
    restored = GroupsState()
    restored.restore(state.snapshot()())
    group = restored.modern(GROUP)
    return ModernGroup(GROUP) if group is None else group


def contents(group: ModernGroup) -> tuple[object, ...]:
    """All that a group is, and not by its `records`, which a snapshot is made of."""
    return (
        group.epoch,
        group.metadata_hash,
        group.target_epoch,
        group.profiles,
        group.currents,
        group.targets,
        group.expressions,
    )


@pytest.mark.parametrize("seed", range(60))
def test_no_partition_is_used_by_two_whatever_happens(seed: int) -> None:
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
        assert model.rig.group.state is ModernState.STABLE
        assert model.used() == model.subscribed()
