"""A long conversation about share groups, said to any broker (KIP-932).

It goes as that about consumer groups does (`consumer_session.py`). Kafka's assignor of share groups
goes by the order of hash tables of partitions, which follows from the ids of their topics. So the
topics are chosen for both brokers at once, from many: those that are in the same order on both.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from confluent_kafka.admin import AdminClient, NewTopic

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.protocol.kafka.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.protocol.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.protocol.kafka.messages.sync_group import SyncGroupRequest
from tests.e2e.consumer_session import (
    MEMBERS,
    SETTLE_TIMEOUT_S,
    TOPIC_TIMEOUT_S,
    Said,
    Session,
)
from tests.waiting import wait_until

HEARTBEAT, DESCRIBE = ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE
VERSION = 1
TOPICS = {"t1": 2, "t2": 3, "t3": 4}
CANDIDATES = 30
OFFSETS_TOPIC = "__consumer_offsets"
# The sizes of Java's hash tables of so few partitions.
JAVA_SLOTS = (8, 16)
GROUP_SIZE_MAX = len(MEMBERS)

# By kind of topic, then by name.
Ids = dict[str, dict[str, UUID]]


# Topics


def make_candidates(bootstrap: str, prefix: str) -> Ids:
    names = {kind: [f"{prefix}{kind}-{n}" for n in range(CANDIDATES)] for kind in TOPICS}
    wanted = [
        NewTopic(name, num_partitions=TOPICS[kind], replication_factor=1)
        for kind, each in names.items()
        for name in each
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(wanted, operation_timeout=30).values():
        made.result(timeout=60)
    found: Ids = {}

    def are_known() -> bool:
        for kind, each in names.items():
            futures = admin.describe_topics(_collection(each)).items()
            ids = {name: UUID(int=_id_of(future.result(60))) for name, future in futures}
            found[kind] = ids
        return True

    wait_until("the topics", are_known, TOPIC_TIMEOUT_S)
    return found


def _collection(names: list[str]) -> Any:
    from confluent_kafka import TopicCollection

    return TopicCollection(names)


def _id_of(described: Any) -> int:
    high = described.topic_id.get_most_significant_bits() & (2**64 - 1)
    return int(high << 64 | described.topic_id.get_least_significant_bits() & (2**64 - 1))


def choose_topics(one: Ids, other: Ids) -> tuple[list[str], list[str]]:
    """Of each kind a topic of both brokers, so that their partitions are in the same order."""
    known = dict(_orders(one))
    for order, names in _orders(other):
        if order in known:
            return known[order], names
    raise AssertionError("no topics are in the same order")


def _orders(ids: Ids) -> Iterator[tuple[tuple[tuple[int, ...], ...], list[str]]]:
    for names in itertools.product(*(ids[kind] for kind in TOPICS)):
        topic_ids = [ids[kind][name] for kind, name in zip(TOPICS, names, strict=True)]
        places = [
            (_java_hash(topic_id) * 31 + partition) & 0xFFFFFFFF
            for topic_id, count in zip(topic_ids, TOPICS.values(), strict=True)
            for partition in range(count)
        ]
        slots = [[(h ^ h >> 16) % size for h in places] for size in JAVA_SLOTS]
        if len(set(slots[-1])) == len(places):
            yield tuple(map(_ranks, _parts(slots))), list(names)


def _parts(slots: list[list[int]]) -> Iterator[list[int]]:
    """A table of one topic is small, one of several is large."""
    small, large = slots
    first = 0
    for count in TOPICS.values():
        yield small[first : first + count]
        first += count
    yield large


def _ranks(slots: list[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(slots)), key=slots.__getitem__))


def _java_hash(topic_id: UUID) -> int:
    both = (topic_id.int >> 64) ^ topic_id.int
    return (both >> 32 ^ both) & 0xFFFFFFFF


class ShareSession(Session):
    """One broker's side of the conversation."""

    def __init__(self, bootstrap: str, prefix: str, ids: Ids, names: list[str]) -> None:
        self._chosen = {
            kind: (name, ids[kind][name]) for kind, name in zip(TOPICS, names, strict=True)
        }
        super().__init__(bootstrap, prefix, is_java=False)

    def _make_topics(self, _: bool) -> None:
        for kind, (name, topic_id) in self._chosen.items():
            self._real_names[kind] = name.removeprefix(self.prefix)
            self._ids[kind] = topic_id
            self._names[topic_id] = kind

    # Heartbeats

    def heartbeat(self, label: str, group: str, member: str, epoch: int, **fields: Any) -> Any:
        topics: list[str] | None = fields.pop("topics", None)
        request = ShareGroupHeartbeatRequest(
            group_id=self.prefix + group if group else "",
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=topics and [self.real(topic) for topic in topics],
            **fields,
        )
        shown = " ".join(f"{k}={v}" for k, v in {"topics": topics, **fields}.items() if v)
        answer = self.ask(f"{label}: {group} {member} {epoch} {shown}", HEARTBEAT, VERSION, request)
        if answer.error_code == ErrorCode.NONE:
            self._remember(group, member, answer)
        return answer

    def real(self, name: str) -> str:
        return name if name == OFFSETS_TOPIC else super().real(name)

    def join(self, group: str, member: str, **fields: Any) -> Any:
        return self.heartbeat("join", group, member, 0, **fields)

    def beat(self, group: str, member: str, **fields: Any) -> Any:
        epoch = self.epochs.get((group, member), 1)
        return self.heartbeat("beat", group, member, epoch, **fields)

    def leave(self, group: str, member: str) -> Any:
        return self.heartbeat("leave", group, member, -1)

    def beat_until_epoch(self, group: str, member: str, epoch: int) -> Any:
        """The state of queues is made beside the heartbeats, and changes of topics reach a
        coordinator late, so the member may have to ask a few times. Only the last is noted."""
        request = ShareGroupHeartbeatRequest(
            group_id=self.prefix + group,
            member_id=member,
            member_epoch=self.epochs[group, member],
        )
        answers: list[Any] = []

        def is_there() -> bool:
            answers.append(self.exchange(HEARTBEAT, VERSION, request))
            return bool(answers[-1].member_epoch >= epoch or answers[-1].error_code)

        wait_until(f"epoch {epoch} of {group}", is_there, SETTLE_TIMEOUT_S)
        self.note(f"beat until epoch {epoch}: {group} {member}", answers[-1])
        self._remember(group, member, answers[-1])
        return answers[-1]

    def open(self, group: str, member: str = "m1", topics: tuple[str, ...] = ("t1",)) -> None:
        """The member joins and waits until the queues of its topics are there. Kafka says so with
        a later heartbeat, Penstock with its first answer: only the last answer is noted."""
        said = list(self.said)
        answer = self.join(group, member, topics=list(topics))
        if not answer.assignment.topic_partitions:
            answer = self.beat_until_epoch(group, member, self.epochs[group, member] + 1)
        self.said = said
        self.note(f"open: {group} {member}", answer)

    def comparable(self) -> list[Said]:
        return [Said(said.label, _without_empty(said.answer)) for said in super().comparable()]

    # The rest

    def describe(self, *groups: str) -> Any:
        ids = [self.prefix + group if group else "" for group in groups]
        request = ShareGroupDescribeRequest(group_ids=ids, include_authorized_operations=False)
        return self.ask(f"describe {' '.join(groups)}", DESCRIBE, VERSION, request)

    def describe_as_consumer(self, group: str) -> None:
        super().describe(group)

    def join_as_consumer(self, group: str, member: str = "c1") -> Any:
        epochs, owned = dict(self.epochs), dict(self.owned)
        answer = super().heartbeat(
            "as consumer",
            group,
            member,
            0,
            topics=["t1"],
            owned={},
            rebalance_timeout_ms=300_000,
        )
        self.epochs, self.owned = epochs, owned
        return answer

    def leave_as_consumer(self, group: str, member: str = "c1") -> None:
        super().heartbeat("as consumer", group, member, -1)

    def join_as_classic(self, group: str, member: str = "") -> None:
        request = JoinGroupRequest(
            group_id=self.prefix + group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=45_000,
            member_id=member,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        self.ask(f"join as classic {group} {member}", ApiKey.JOIN_GROUP, 9, request)

    def sync_as_classic(self, group: str, member: str) -> None:
        request = SyncGroupRequest(
            group_id=self.prefix + group, generation_id=1, member_id=member, assignments=[]
        )
        self.ask(f"sync as classic {group} {member}", ApiKey.SYNC_GROUP, 5, request)

    def leave_as_classic(self, group: str, member: str) -> None:
        gone = [MemberIdentity(member_id=member)]
        request = LeaveGroupRequest(group_id=self.prefix + group, members=gone)
        self.ask(f"leave as classic {group} {member}", ApiKey.LEAVE_GROUP, 5, request)

    def delete_offsets(self, group: str, topic: str) -> None:
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        topics = [OffsetDeleteRequestTopic(name=self.real(topic), partitions=partitions)]
        request = OffsetDeleteRequest(group_id=self.prefix + group, topics=topics)
        self.ask(f"delete offsets {group} {topic}", ApiKey.OFFSET_DELETE, 0, request)

    def find_share_coordinator(self, *keys: str, version: int = 6) -> None:
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=list(keys))
        answer = self.exchange(ApiKey.FIND_COORDINATOR, version, request)
        found = [(each.key, ErrorCode(each.error_code).name) for each in answer.coordinators]
        self.note(f"find the coordinator of {keys} {version}", found)

    def _wait_for_topics(self) -> None:
        """Clients may know a topic before the coordinator does."""
        join = ShareGroupHeartbeatRequest(
            group_id=self.prefix + "g-first",
            member_id="m1",
            member_epoch=0,
            subscribed_topic_names=[self.real(name) for name in TOPICS],
        )

        def are_known() -> bool:
            answer = self.exchange(HEARTBEAT, VERSION, join)
            assignment = answer.assignment
            return assignment is not None and len(assignment.topic_partitions) == len(TOPICS)

        wait_until("topics at the coordinator", are_known, TOPIC_TIMEOUT_S)
        assert self._look_up(OFFSETS_TOPIC)
        join.member_epoch, join.subscribed_topic_names = -1, None
        self.exchange(HEARTBEAT, VERSION, join)
        self._note_nothing(partial(self.delete, "g-first"))

    def _note_nothing(self, action: Callable[[], None]) -> None:
        said = list(self.said)
        action()
        self.said = said


def _without_empty(value: Any) -> Any:
    """Kafka lists a topic of which a member has lost all partitions, without any. We do not."""
    if isinstance(value, list):
        return [_without_empty(each) for each in value if not _is_empty_topic(each)]
    if isinstance(value, dict):
        return {name: _without_empty(each) for name, each in value.items()}
    return value


def _is_empty_topic(value: Any) -> bool:
    return isinstance(value, dict) and "topic_id" in value and value.get("partitions") == []


# What is said


def converse(session: ShareSession, seeds: tuple[int, ...]) -> list[Said]:
    session.find_coordinator()
    for part in (
        bad_requests,
        members_come_and_go,
        more_members_than_partitions,
        epochs,
        subscriptions,
        topics_change,
        one_name_one_type,
        groups_seen_from_outside,
        coordinators,
    ):
        part(session)
    for seed in seeds:
        at_random(session, f"g-random-{seed}", random.Random(seed))
    return session.said


def bad_requests(s: ShareSession) -> None:
    g = "g-bad"
    s.heartbeat("no group id", "", "m1", 0, topics=["t1"])
    s.heartbeat("no member id", g, "", 0, topics=["t1"])
    s.heartbeat("no rack", g, "m1", 0, topics=["t1"], rack_id="")
    s.heartbeat("unknown group", g, "m1", 1)
    s.heartbeat("leave unknown group", g, "m1", -1)
    s.heartbeat("epoch -2", g, "m1", -2)
    s.heartbeat("join without topics", g, "m1", 0)
    s.heartbeat("join with no topics", g, "m1", 0, topics=[])
    s.describe(g, "")


def members_come_and_go(s: ShareSession) -> None:
    g = "g-come"
    s.open(g, "m1", ("t1", "t2", "t3"))
    s.describe(g)
    for member in ("m2", "m3", "m4"):
        s.join(g, member, topics=["t1", "t2", "t3"], rack_id="r1")
        s.settle(g, 2)
        s.describe(g)
    s.leave(g, "m2")
    s.settle(g, 2)
    s.describe(g)
    s.leave(g, "m2")
    s.heartbeat("after leaving", g, "m2", 5)
    for member in ("m1", "m3", "m4"):
        s.leave(g, member)
        s.describe(g)
    s.join(g, "m5", topics=["t2"])
    s.settle(g, 2)
    s.describe(g)


def more_members_than_partitions(s: ShareSession) -> None:
    g = "g-many"
    s.open(g)
    for member in MEMBERS[1:]:
        s.join(g, member, topics=["t1"])
    s.settle(g, 2)
    s.join(g, "m7", topics=["t1"])
    s.join(g, "m1", topics=["t1"])
    s.heartbeat("unknown in a full group", g, "m7", 3)
    s.describe(g)
    for member in MEMBERS[:4]:
        s.leave(g, member)
        s.settle(g, 2)
    s.describe(g)


def epochs(s: ShareSession) -> None:
    g = "g-epochs"
    s.open(g)
    now = s.epochs[g, "m1"]
    for epoch in (now - 2, now - 1, now, now + 1, 0):
        s.heartbeat("epoch", g, "m1", epoch, topics=["t1"] if not epoch else None)
    s.join(g, "m2", topics=["t1"])
    s.heartbeat("previous", g, "m1", now)
    s.heartbeat("previous again", g, "m1", now)
    s.heartbeat("too old", g, "m1", now - 1)
    s.heartbeat("another", g, "m3", now)
    s.join(g, "m1", topics=["t1"])
    s.leave(g, "m3")
    s.leave(g, "m1")
    s.join(g, "m1", topics=["t1"])
    s.settle(g)


def subscriptions(s: ShareSession) -> None:
    g = "g-topics"
    s.open(g, "m1", ("t1", "t2", "t3"))
    s.join(g, "m2", topics=["t2"])
    s.settle(g)
    for topics in (["t1", "t2"], ["t3"], [], ["nowhere"], ["t1", "nowhere"], ["t1", "t2", "t3"]):
        s.beat(g, "m1", topics=topics)
        s.settle(g, 2)
        s.describe(g)
    s.beat(g, "m1", topics=["t3", "t2", "t1"])
    s.beat(g, "m1", rack_id="r2")
    s.beat(g, "m1")
    s.describe(g)
    s.open("g-internal", "m1", (OFFSETS_TOPIC,))
    s.join("g-nothing", "m1", topics=["nowhere"])
    s.settle("g-nothing")
    s.describe("g-nothing", "g-internal")


def topics_change(s: ShareSession) -> None:
    g = "g-change"
    s.join(g, "m1", topics=["t4"])
    s.settle(g)
    s.create("t4", 2)
    s.beat_until_epoch(g, "m1", s.epochs[g, "m1"] + 2)
    s.settle(g)
    s.grow("t4", 5)
    s.beat_until_epoch(g, "m1", s.epochs[g, "m1"] + 2)
    s.settle(g)
    s.describe(g)


def one_name_one_type(s: ShareSession) -> None:
    s.commit("g-simple", "", -1, "t1", {0: 1})
    s.join("g-simple", "m1", topics=["t1"])
    s.heartbeat("of a classic group", "g-simple", "m1", 1)
    s.leave("g-simple", "m1")
    s.describe("g-simple")
    s.join_as_consumer("g-consumer")
    s.join("g-consumer", "m1", topics=["t1"])
    s.leave_as_consumer("g-consumer")
    s.join("g-consumer", "m1", topics=["t1"])
    s.leave("g-consumer", "m1")
    s.describe("g-consumer")
    g = "g-typed"
    s.open(g)
    others_ask(s, g)
    s.beat(g, "m1")
    s.leave(g, "m1")
    others_ask(s, g)
    s.describe(g)


def others_ask(s: ShareSession, g: str) -> None:
    """Requests that are not for share groups."""
    s.join_as_consumer(g)
    s.leave_as_consumer(g)
    s.join_as_classic(g)
    s.join_as_classic(g, "m1")
    s.sync_as_classic(g, "m1")
    s.heartbeat_classic(g, "m1", 1)
    s.leave_as_classic(g, "m1")
    s.commit(g, "", -1, "t1", {0: 1})
    s.commit(g, "m1", 3, "t1", {0: 1})
    s.fetch_offsets(g, None, -1, "t1")
    s.fetch_offsets(g, "m1", 3, "t1")
    s.delete_offsets(g, "t1")
    s.describe_classic(g)
    s.describe_as_consumer(g)


def groups_seen_from_outside(s: ShareSession) -> None:
    g = "g-seen"
    s.open(g)
    s.delete(g)
    for types in ((), ("share",), ("classic",), ("consumer",), ("Share", "classic"), ("nonsense",)):
        s.list_groups(*types)
    s.list_groups(states=("Stable",))
    s.list_groups("share", states=("Empty",))
    s.leave(g, "m1")
    s.list_groups("share", states=("empty",))
    s.delete(g)
    s.delete(g)
    s.describe(g)
    s.heartbeat("gone", g, "m1", 1)
    s.open(g)
    s.describe(g)
    s.leave(g, "m1")
    s.delete("g-come")
    s.delete("g-nothing")


def coordinators(s: ShareSession) -> None:
    for key in (
        "",
        "g",
        "g:t:0",
        ":AAAAAAAAAAAAAAAAAAAAAA:0",
        "g:AAAAAAAAAAAAAAAAAAAAAQ:x",
        "g:x",
    ):
        s.find_share_coordinator(key)
    s.find_share_coordinator("g:AAAAAAAAAAAAAAAAAAAAAQ:0", version=5)


def at_random(s: ShareSession, group: str, rng: random.Random, steps: int = 70) -> None:
    """All queues are there before, or answers would depend on time."""
    s.open(group, "m1", tuple(TOPICS))
    for _ in range(steps):
        member = rng.choice(MEMBERS)
        actions = dict(_actions(s, group, member, rng))
        names = sorted(actions)
        weights = [12 if name == "beat" else 2 for name in names]
        actions[rng.choices(names, weights)[0]]()
    s.describe(group)


class _Dice(NamedTuple):
    topics: list[str]
    is_alike: bool


def _actions(
    s: ShareSession, group: str, member: str, rng: random.Random
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What a member may do next, right or wrong; the dice fall the same way in any case."""
    dice = _Dice(sorted(rng.sample(sorted(TOPICS), rng.randint(1, 3))), rng.random() < 0.5)
    topics = sorted(TOPICS) if dice.is_alike else dice.topics
    epoch = s.epochs.get((group, member), 1)
    if (group, member) not in s.epochs:
        yield "beat", lambda: s.join(group, member, topics=topics)
        yield "ghost", lambda: s.heartbeat("ghost", group, member, epoch)
        return
    yield "beat", lambda: s.beat(group, member)
    yield "topics", lambda: s.beat(group, member, topics=topics)
    yield "rack", lambda: s.beat(group, member, rack_id=f"r{rng.randint(1, 2)}")
    yield "stale", lambda: s.heartbeat("stale", group, member, epoch - 1)
    yield "future", lambda: s.heartbeat("future", group, member, epoch + 1)
    yield "again", lambda: s.join(group, member, topics=topics)
    yield "leave", lambda: s.leave(group, member)
    yield "describe", lambda: s.describe(group)
