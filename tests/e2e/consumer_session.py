"""A long conversation about groups of the new consumer protocol, said to any broker (KIP-848).

What is said follows from a seed and from the broker's own answers: its epochs and assignments. So
two brokers that answer the same are asked the same. Answers become plain values, with topics by
their names; `IGNORED` lists what is left out of them.

Kafka iterates over hash tables of members and topics. The names of members are chosen so that their
order there is the alphabetical one, and topics are chosen whose ids are in order too.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,
    NewTopic,
)

from penstock.groups.subscriptions import read_assignment, read_subscription, read_version
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.protocol.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from penstock.protocol.kafka.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.kafka.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.kafka.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.kafka.messages.heartbeat import HeartbeatRequest
from penstock.protocol.kafka.messages.list_groups import ListGroupsRequest
from penstock.protocol.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.protocol.kafka.schema import Struct, schema_of
from tests.e2e.topics import create_topic
from tests.e2e.wire import Wire, connect, frame
from tests.waiting import wait_until

# About load and machine, and the sentences beside an error code, which each broker words itself.
IGNORED = frozenset({"throttle_time_ms", "client_host", "error_message"})
HEARTBEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE
HEARTBEAT_VERSION = DESCRIBE_VERSION = 1
TOPICS = {"t1": 4, "t2": 3, "t3": 6}
# Made of each kind of topic. Of 9, no three had ids in order in one run of sixteen.
CANDIDATES = 20
TOPIC_TIMEOUT_S = 60.0
REBALANCE_TIMEOUT_MS = 300_000
SETTLE_TIMEOUT_S = 60.0
MEMBERS = tuple(f"m{number}" for number in range(1, 7))
STATIC = {"m5": "i5", "m6": "i6"}
# The slots of a small hash table of Java.
JAVA_SLOTS = 16

Owned = dict[str, list[int]]


class Said(NamedTuple):
    label: str
    answer: Any


class Session:
    """One broker's side of the conversation."""

    def __init__(self, bootstrap: str, prefix: str, *, is_java: bool) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.said: list[Said] = []
        self.epochs: dict[tuple[str, str], int] = {}
        self.owned: dict[tuple[str, str], Owned] = {}
        self._wire: Wire = connect(bootstrap)
        self._ids: dict[str, UUID] = {}
        self._real_names: dict[str, str] = {}
        self._names: dict[UUID, str] = {}
        # Ids that the broker has made.
        self._members: dict[str, str] = {}
        self._make_topics(is_java)

    def close(self) -> None:
        self._wire.socket.close()

    # Topics

    def _make_topics(self, is_java: bool) -> None:
        """Some topics of each kind are made, and of each one is taken, so that their ids are in
        order, whichever way the broker orders them."""
        kinds = [[f"{kind}-{number}" for number in range(CANDIDATES)] for kind in TOPICS]
        wanted = [
            NewTopic(self.prefix + name, num_partitions=TOPICS[kind], replication_factor=1)
            for kind, names in zip(TOPICS, kinds, strict=True)
            for name in names
        ]
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for made in admin.create_topics(wanted, operation_timeout=30).values():
            made.result(timeout=60)
        for name in itertools.chain(*kinds):
            wait_until("the topic", partial(self._look_up, name), TOPIC_TIMEOUT_S)
        found = {name: self._ids.pop(name) for name in itertools.chain(*kinds)}
        self._names.clear()
        for names in itertools.product(*kinds):
            topic_ids = [found[name] for name in names]
            if _is_in_order(topic_ids, is_java=is_java):
                break
        else:
            raise AssertionError("no ids are in order")
        self._real_names = dict(zip(TOPICS, names, strict=True))
        self._ids = dict(zip(TOPICS, topic_ids, strict=True))
        self._names = {topic_id: kind for kind, topic_id in self._ids.items()}

    def real(self, name: str) -> str:
        """The name of a topic on the broker."""
        return self.prefix + self._real_names.get(name, name)

    def _look_up(self, name: str, partitions: int = 1) -> bool:
        asked = [MetadataRequestTopic(name=self.real(name))]
        (topic,) = self.exchange(ApiKey.METADATA, 12, MetadataRequest(topics=asked)).topics
        if topic.error_code or len(topic.partitions) < partitions:
            return False
        self._ids[name] = topic.topic_id
        self._names[topic.topic_id] = name
        return True

    def grow(self, name: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wanted = NewPartitions(self.real(name), partitions)
        admin.create_partitions([wanted])[self.real(name)].result(60)
        wait_until("the partitions", lambda: self._look_up(name, partitions), TOPIC_TIMEOUT_S)
        self.note(f"grow {name} to {partitions}", None)

    def create(self, name: str, partitions: int) -> None:
        create_topic(self.bootstrap, self.real(name), partitions=partitions)
        wait_until("the topic", lambda: self._look_up(name), TOPIC_TIMEOUT_S)
        self.note(f"create {name} with {partitions}", None)

    # Talking

    def exchange(self, key: ApiKey, version: int, request: object) -> Any:
        self._wire.send(frame(key, version, request))
        return self._wire.receive(key, version)

    def ask(self, label: str, key: ApiKey, version: int, request: object) -> Any:
        answer = self.exchange(key, version, request)
        self.note(label, answer)
        return answer

    def note(self, label: str, answer: Any) -> None:
        self.said.append(Said(label, self._plain(answer)))

    def comparable(self) -> list[Said]:
        """What was said, without what is ignored."""
        return [Said(said.label, _without_ignored(said.answer)) for said in self.said]

    def _plain(self, value: Any, name: str = "") -> Any:
        """Structs become dictionaries, in which lists without an order are sorted."""
        if isinstance(value, Struct):
            fields = (field.name for field in schema_of(type(value)).fields)
            return {each: self._plain(getattr(value, each), each) for each in fields}
        if isinstance(value, list):
            return sorted((self._plain(each, name) for each in value), key=repr)
        if isinstance(value, UUID):
            return self._names.get(value, "no topic")
        if name == "error_code":
            return ErrorCode(value).name
        if isinstance(value, bytes):
            return self._plain_bytes(value, name)
        return self._without_names(value) if isinstance(value, str) else value

    def _plain_bytes(self, data: bytes, name: str) -> Any:
        """What members of the classic protocol say to each other."""
        if not data:
            return data
        if "assignment" in name:
            return read_version(data), self.named_partitions(data)
        subscription = read_subscription(data)
        if subscription is None:
            return data
        topics = sorted(map(self._without_names, subscription.topics))
        return read_version(data), topics, self._owned_by_name(subscription.owned)

    def named_partitions(self, assignment: bytes) -> Owned:
        read = read_assignment(assignment)
        assert read is not None, assignment
        return self._owned_by_name(read.partitions)

    def _owned_by_name(self, partitions: Mapping[str, frozenset[int]]) -> Owned:
        named = {self._without_names(topic): sorted(ps) for topic, ps in partitions.items()}
        return dict(sorted(named.items()))

    def name_member(self, member_id: str, name: str) -> None:
        self._members[member_id] = name

    def _without_names(self, text: str) -> str:
        if text in self._members:
            return self._members[text]
        for kind, name in self._real_names.items():
            text = text.replace(self.prefix + name, kind)
        return text.replace(self.prefix, "")

    def _with_names(self, expression: str) -> str:
        for kind in TOPICS:
            expression = expression.replace(f"@{kind}", self.real(kind))
        return expression

    # Heartbeats

    def heartbeat(self, label: str, group: str, member: str, epoch: int, **fields: Any) -> Any:
        """One heartbeat as given; epochs and assignments in a good answer are remembered."""
        version = fields.pop("version", HEARTBEAT_VERSION)
        owned: Owned | None = fields.pop("owned", None)
        topics: list[str] | None = fields.pop("topics", None)
        regex: str | None = fields.pop("regex", None)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.prefix + group,
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=None
            if topics is None
            else [self.real(topic) for topic in topics],
            subscribed_topic_regex=None if regex is None else self._with_names(regex),
            topic_partitions=None if owned is None else self._places(owned),
            **fields,
        )
        shown = {"owned": owned, "topics": topics, "regex": regex, **fields}
        details = " ".join(f"{k}={v}" for k, v in shown.items() if v is not None)
        text = f"{label}: {group} {member} epoch={epoch} {details}"
        answer = self.ask(text, HEARTBEAT, version, request)
        if answer.error_code == ErrorCode.NONE:
            self._remember(group, member, answer)
        return answer

    def _remember(self, group: str, member: str, answer: Any) -> None:
        place = group, member
        if answer.member_epoch < 0:
            self.epochs.pop(place, None)
            self.owned.pop(place, None)
            return
        self.epochs[place] = answer.member_epoch
        if answer.assignment is not None:
            assigned = answer.assignment.topic_partitions
            owned = {self._names[each.topic_id]: sorted(each.partitions) for each in assigned}
            # In order, so that what follows from it is the same whatever the answer's order.
            self.owned[place] = dict(sorted(owned.items()))

    def _places(self, owned: Owned) -> list[HeartbeatTopicPartitions]:
        return [
            HeartbeatTopicPartitions(topic_id=self._ids.get(t, UUID(int=1)), partitions=numbers)
            for t, numbers in owned.items()
        ]

    def join(self, group: str, member: str, **fields: Any) -> Any:
        given: dict[str, Any] = {
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "owned": {},
            "instance_id": STATIC.get(member),
            **fields,
        }
        return self.heartbeat("join", group, member, 0, **given)

    def beat(self, group: str, member: str, **fields: Any) -> Any:
        """A heartbeat that confirms what the last answer assigned."""
        place = group, member
        given = {"owned": self.owned.get(place, {}), **fields}
        return self.heartbeat("beat", group, member, self.epochs.get(place, 1), **given)

    def settle(self, group: str, rounds: int = 3) -> None:
        """All known members confirm, a few times."""
        for _ in range(rounds):
            for known, member in sorted(self.epochs):
                if known == group:
                    self.beat(group, member)

    # The rest

    def describe(self, *groups: str) -> Any:
        ids = [self.prefix + group for group in groups]
        return self.ask(
            f"describe {' '.join(groups)}",
            DESCRIBE,
            DESCRIBE_VERSION,
            ConsumerGroupDescribeRequest(group_ids=ids),
        )

    def beat_until_epoch(self, group: str, member: str, epoch: int) -> None:
        """Expressions are evaluated beside the heartbeats, and changes of topics reach a
        coordinator later than clients, so the member may have to ask a few times. Only the last
        answer is noted."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.prefix + group,
            member_id=member,
            member_epoch=self.epochs[group, member],
            topic_partitions=self._places(self.owned.get((group, member), {})),
        )
        answers: list[Any] = []

        def is_there() -> bool:
            answers.append(self.exchange(HEARTBEAT, HEARTBEAT_VERSION, request))
            return bool(answers[-1].member_epoch >= epoch)

        wait_until(f"epoch {epoch} of {group}", is_there, SETTLE_TIMEOUT_S)
        self.note(f"beat until epoch {epoch}: {group} {member}", answers[-1])
        self._remember(group, member, answers[-1])

    def commit(
        self, group: str, member: str, epoch: int, topic: str, offsets: dict[int, int]
    ) -> Any:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=""
            )
            for number, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.prefix + group,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            topics=[OffsetCommitRequestTopic(name=self.real(topic), partitions=partitions)],
        )
        label = f"commit {group} {member!r} epoch={epoch} {topic} {offsets}"
        return self.ask(label, ApiKey.OFFSET_COMMIT, 9, request)

    def fetch_offsets(self, group: str, member: str | None, epoch: int, topic: str) -> Any:
        topics = [OffsetFetchRequestTopics(name=self.real(topic), partition_indexes=[0, 1, 2])]
        asked = OffsetFetchRequestGroup(
            group_id=self.prefix + group, member_id=member, member_epoch=epoch, topics=topics
        )
        label = f"fetch offsets {group} {member!r} epoch={epoch} {topic}"
        request = OffsetFetchRequest(groups=[asked], require_stable=True)
        return self.ask(label, ApiKey.OFFSET_FETCH, 9, request)

    def list_groups(self, *types: str, states: tuple[str, ...] = ()) -> None:
        request = ListGroupsRequest(types_filter=list(types), states_filter=list(states))
        answer = self.exchange(ApiKey.LIST_GROUPS, 5, request)
        # Other tests use the same broker.
        answer.groups = [each for each in answer.groups if each.group_id.startswith(self.prefix)]
        self.note(f"list groups {types} {states}", answer)

    def describe_classic(self, group: str) -> None:
        request = DescribeGroupsRequest(groups=[self.prefix + group])
        self.ask(f"describe as classic {group}", ApiKey.DESCRIBE_GROUPS, 6, request)

    def heartbeat_classic(self, group: str, member: str, generation: int) -> None:
        request = HeartbeatRequest(
            group_id=self.prefix + group, generation_id=generation, member_id=member
        )
        self.ask(f"heartbeat as classic {group} {member}", ApiKey.HEARTBEAT, 4, request)

    def delete(self, group: str) -> None:
        request = DeleteGroupsRequest(groups_names=[self.prefix + group])
        self.ask(f"delete {group}", ApiKey.DELETE_GROUPS, 2, request)

    def find_coordinator(self) -> None:
        """The topic of groups is there afterwards."""
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.prefix])

        def is_there() -> bool:
            answer = self.exchange(ApiKey.FIND_COORDINATOR, 4, request)
            return bool(answer.coordinators[0].error_code == ErrorCode.NONE)

        wait_until("a coordinator", is_there, TOPIC_TIMEOUT_S)
        request_describe = ConsumerGroupDescribeRequest(group_ids=[self.prefix])

        def is_loaded() -> bool:
            answer = self.exchange(DESCRIBE, DESCRIBE_VERSION, request_describe)
            return bool(answer.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND)

        wait_until("a loaded coordinator", is_loaded, TOPIC_TIMEOUT_S)
        self._wait_for_topics()

    def _wait_for_topics(self) -> None:
        """Clients may know a topic before the coordinator does."""
        group = self.prefix + "g-first"
        everything = [self.real(name) for name in TOPICS]
        join = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="m1",
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=everything,
            topic_partitions=[],
        )
        leave = ConsumerGroupHeartbeatRequest(group_id=group, member_id="m1", member_epoch=-1)

        def are_known() -> bool:
            answer = self.exchange(HEARTBEAT, HEARTBEAT_VERSION, join)
            self.exchange(HEARTBEAT, HEARTBEAT_VERSION, leave)
            return len(answer.assignment.topic_partitions) == len(everything)

        wait_until("topics at the coordinator", are_known, TOPIC_TIMEOUT_S)
        deletion = DeleteGroupsRequest(groups_names=[group])
        self.exchange(ApiKey.DELETE_GROUPS, 2, deletion)


def _without_ignored(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_ignored(v) for k, v in value.items() if k not in IGNORED}
    return [_without_ignored(each) for each in value] if isinstance(value, list) else value


def _is_in_order(topic_ids: list[UUID], *, is_java: bool) -> bool:
    """Java compares ids as signed numbers where it sorts them, and elsewhere hashes them."""
    keys: list[Callable[[UUID], int]] = (
        [_java_slot, _signed] if is_java else [lambda each: each.int]
    )
    return all(
        key(one) < key(next_one) for key in keys for one, next_one in itertools.pairwise(topic_ids)
    )


def _signed(topic_id: UUID) -> int:
    high = topic_id.int >> 64
    return high - 2**64 if high >= 2**63 else high


def _java_slot(topic_id: UUID) -> int:
    """Where Java's hash tables put an id."""
    both = (topic_id.int >> 64) ^ (topic_id.int & (2**64 - 1))
    code = ((both >> 32) ^ both) & 0xFFFFFFFF
    return (code ^ (code >> 16)) % JAVA_SLOTS


# What is said


def converse(
    session: Session, seeds: tuple[int, ...], more: Sequence[Callable[[Session], None]] = ()
) -> list[Said]:
    session.find_coordinator()
    for part in (
        bad_requests,
        members_come_and_go,
        epochs,
        static_members,
        ranges,
        tied_votes,
        expressions,
        offsets,
        commits_for_another,
        topics_change,
        groups_seen_from_outside,
        *more,
    ):
        part(session)
    for seed in seeds:
        at_random(session, f"g-random-{seed}", random.Random(seed))
    return session.said


def bad_requests(s: Session) -> None:
    g = "g-bad"
    s.heartbeat("no group id", "", "m1", 0)
    s.heartbeat("no member id", g, "", 0, owned={}, topics=["t1"], rebalance_timeout_ms=1)
    s.heartbeat("unknown group", g, "m1", 1)
    s.heartbeat("leave unknown group", g, "m1", -1)
    s.heartbeat("epoch -3", g, "m1", -3)
    s.heartbeat("join without time-out", g, "m1", 0, owned={}, topics=["t1"])
    s.heartbeat("join without owned", g, "m1", 0, rebalance_timeout_ms=1, topics=["t1"])
    s.heartbeat("join that owns", g, "m1", 0, rebalance_timeout_ms=1, owned={"t1": [0]}, topics=[])
    s.heartbeat("join without topics", g, "m1", 0, rebalance_timeout_ms=1, owned={})
    s.join(g, "m1", topics=["t1"], server_assignor="nobody")
    s.join(g, "m1", topics=["t1"], server_assignor="")
    s.join(g, "m1", topics=["t1"], instance_id="")
    s.join(g, "m1", topics=["t1"], rack_id="")
    s.join(g, "m1", regex="(")
    s.join(g, "m1", regex="(?=x)")
    s.join(g, "m1", regex="")
    s.heartbeat("-2 without instance", g, "m1", -2)
    s.describe(g)


def members_come_and_go(s: Session) -> None:
    g = "g-uniform"
    s.join(g, "m1", topics=["t1"])
    s.beat(g, "m1")
    s.describe(g)
    s.join(g, "m2", topics=["t1"])
    s.describe(g)
    s.beat(g, "m2")
    s.heartbeat("still owns all", g, "m1", s.epochs[g, "m1"], owned=s.owned[g, "m1"])
    s.beat(g, "m1")
    s.beat(g, "m2")
    s.beat(g, "m2", owned=None)
    s.join(g, "m3", topics=["t1", "t2"])
    s.settle(g)
    s.describe(g)
    s.heartbeat("leave", g, "m1", -1)
    s.heartbeat("leave twice", g, "m1", -1)
    s.settle(g)
    s.beat(g, "m2", topics=["t2", "t3"])
    s.settle(g, 4)
    s.beat(g, "m2", topics=["unknown"])
    s.settle(g)
    s.beat(g, "m2", server_assignor="range")
    s.settle(g)
    s.beat(g, "m3", server_assignor="range", topics=["t1", "t2", "t3"])
    s.settle(g)
    s.describe(g)
    for member in ("m2", "m3"):
        s.heartbeat("leave", g, member, -1)
        s.describe(g)


def epochs(s: Session) -> None:
    g = "g-epochs"
    s.join(g, "m1", topics=["t1", "t2"])
    s.heartbeat("unknown member", g, "m9", 1, owned={})
    s.heartbeat("future epoch", g, "m1", s.epochs[g, "m1"] + 1, owned={})
    s.beat(g, "m1")
    s.join(g, "m2", topics=["t1", "t2"])
    before = dict(s.owned)
    s.beat(g, "m1")
    # The answer with the new epoch was lost, so the old epoch comes once more.
    s.beat(g, "m1")
    stale = s.epochs[g, "m1"] - 1
    s.heartbeat("last epoch, subset", g, "m1", stale, owned=s.owned[g, "m1"])
    s.heartbeat("last epoch, all of before", g, "m1", stale, owned=before[g, "m1"])
    s.heartbeat("last epoch, nothing", g, "m1", stale, owned={})
    s.heartbeat("last epoch, null", g, "m1", stale)
    s.heartbeat("far behind", g, "m1", max(1, stale - 2), owned={})
    s.settle(g)
    s.join(g, "m1", topics=["t1", "t2"])
    s.settle(g)
    s.heartbeat("owns what is not", g, "m1", s.epochs[g, "m1"], owned={"nowhere": [0], "t1": [77]})
    s.heartbeat("owns nothing", g, "m1", s.epochs[g, "m1"], owned={})
    s.settle(g)
    s.describe(g)


def static_members(s: Session) -> None:
    g = "g-static"
    s.join(g, "m5", topics=["t3"])
    s.join(g, "m1", topics=["t3"])
    s.settle(g)
    s.join(g, "m6", topics=["t3"], instance_id="i5")
    s.heartbeat("another's instance", g, "m1", s.epochs[g, "m1"], owned={}, instance_id="i5")
    s.heartbeat("leave for now", g, "m5", -2, instance_id="i5")
    s.describe(g)
    s.join(g, "m2", topics=["t3"], instance_id="i5")
    s.heartbeat("the one before", g, "m5", 1, owned={}, instance_id="i5")
    s.epochs.pop((g, "m5"), None)
    s.settle(g)
    s.describe(g)
    s.heartbeat("leave for now", g, "m2", -2, instance_id="i5")
    s.join(g, "m3", topics=["t2"], instance_id="i5")
    s.epochs.pop((g, "m2"), None)
    s.settle(g)
    s.heartbeat("leave for good", g, "m3", -1, instance_id="i5")
    s.heartbeat("leave of unknown instance", g, "m3", -2, instance_id="i9")
    s.settle(g)
    s.describe(g)


def ranges(s: Session) -> None:
    g = "g-range"
    for member in ("m3", "m5", "m1"):
        s.join(g, member, topics=["t1", "t3"], server_assignor="range")
    s.settle(g, 4)
    s.describe(g)
    s.join(g, "m2", topics=["t2", "t3"], server_assignor="uniform")
    s.settle(g, 4)
    s.describe(g)


def tied_votes(s: Session) -> None:
    """Members choose an assignor; what happens if two are chosen equally often."""
    for g, first, second in (("g-tie-1", "uniform", "range"), ("g-tie-2", "range", "uniform")):
        s.join(g, "m1", topics=["t1", "t2"], server_assignor=first)
        s.join(g, "m2", topics=["t1", "t2", "t3"], server_assignor=second)
        s.describe(g)
        s.settle(g)
        s.join(g, "m3", topics=["t3"])
        s.describe(g)
        s.settle(g)
        s.beat(g, "m3", server_assignor=first)
        s.join(g, "m4", topics=["t3"], server_assignor=second)
        s.describe(g)


def expressions(s: Session) -> None:
    g = "g-regex"
    s.join(g, "m1", regex="@t1|@t2")
    s.beat_until_epoch(g, "m1", 2)
    s.settle(g)
    s.describe(g)
    s.join(g, "m2", regex="@t1|@t2")
    s.settle(g)
    s.beat(g, "m1", regex="[")
    s.beat(g, "m1", topics=["t3"])
    s.settle(g)
    s.beat(g, "m1", regex="")
    s.settle(g)
    s.describe(g)
    s.heartbeat("version 0", g, "m2", s.epochs[g, "m2"], version=0, owned=s.owned[g, "m2"])


def offsets(s: Session) -> None:
    g = "g-offsets"
    s.commit(g, "", -1, "t1", {0: 5})
    s.commit(g, "m1", 1, "t1", {0: 5})
    s.join(g, "m1", topics=["t1"])
    now = s.epochs[g, "m1"]
    s.commit(g, "m1", now, "t1", {0: 7, 1: 8})
    s.commit(g, "m1", now - 1, "t1", {0: 9})
    s.commit(g, "m1", now + 1, "t1", {0: 9})
    s.commit(g, "m9", now, "t1", {0: 9})
    s.commit(g, "", -1, "t1", {0: 9})
    s.fetch_offsets(g, "m1", now, "t1")
    s.fetch_offsets(g, "m1", now - 1, "t1")
    s.fetch_offsets(g, "m1", now + 1, "t1")
    s.fetch_offsets(g, "m9", now, "t1")
    s.fetch_offsets(g, None, -1, "t1")
    s.join(g, "m2", topics=["t1"])
    s.settle(g)
    # Partitions that were kept since then take the old epoch, those that moved do not.
    for number in range(4):
        s.commit(g, "m1", now, "t1", {number: 20 + number})
    for number in s.owned[g, "m2"]["t1"]:
        s.commit(g, "m2", s.epochs[g, "m2"], "t1", {number: 30 + number})
    s.commit(g, "m1", now, "t1", {number: 40 + number for number in range(4)})
    s.commit(g, "m1", s.epochs[g, "m1"], "t2", {0: 1})
    s.fetch_offsets(g, "m1", s.epochs[g, "m1"], "t1")
    s.heartbeat("leave", g, "m1", -1)
    s.commit(g, "m1", now, "t1", {0: 50})
    s.heartbeat("leave", g, "m2", -1)
    s.commit(g, "", -1, "t1", {0: 60})
    s.fetch_offsets(g, None, -1, "t1")


def commits_for_another(s: Session) -> None:
    """A member of the present epoch commits what is another's; nothing that follows depends on it.

    The other parts let members commit only what is their own, or with an old epoch."""
    g = "g-another"
    s.join(g, "m1", topics=["t1"])
    s.join(g, "m2", topics=["t1"])
    s.settle(g)
    for member, other in (("m1", "m2"), ("m2", "m1")):
        number = s.owned[g, other]["t1"][0]
        s.commit(g, member, s.epochs[g, member], "t1", {number: 1})


def topics_change(s: Session) -> None:
    g = "g-topics"
    s.join(g, "m1", topics=["t1", "t4"])
    s.settle(g)
    s.create("t4", 2)
    s.beat_until_epoch(g, "m1", s.epochs[g, "m1"] + 1)
    s.settle(g)
    s.grow("t4", 5)
    s.beat_until_epoch(g, "m1", s.epochs[g, "m1"] + 1)
    s.settle(g)
    s.join(g, "m2", topics=["t4"])
    s.settle(g, 4)
    s.describe(g)
    s.join("g-nothing", "m1", topics=["nowhere"])
    s.settle("g-nothing")
    s.beat("g-nothing", "m1", topics=["t1"])
    s.settle("g-nothing")
    s.join("g-none", "m1", topics=[])
    s.settle("g-none")
    s.describe("g-nothing", "g-none")


def groups_seen_from_outside(s: Session) -> None:
    g = "g-seen"
    s.join(g, "m1", topics=["t1"])
    s.describe_classic(g)
    s.heartbeat_classic(g, "m1", 1)
    s.delete(g)
    s.describe(g, "g-nobody", "")
    for types in ((), ("consumer",), ("classic",), ("Consumer", "share"), ("nonsense",)):
        s.list_groups(*types)
    s.list_groups(states=("Stable",))
    s.list_groups("consumer", states=("Empty", "Reconciling"))
    s.heartbeat("leave", g, "m1", -1)
    s.delete(g)
    s.describe(g)
    s.heartbeat("gone", g, "m1", 1)


def at_random(s: Session, group: str, rng: random.Random, steps: int = 60) -> None:
    for _ in range(steps):
        member = rng.choice(MEMBERS)
        actions = dict(_actions(s, group, member, rng))
        names = sorted(actions)
        weights = [12 if name == "beat" else 2 for name in names]
        actions[rng.choices(names, weights)[0]]()
    s.describe(group)


def _actions(
    s: Session, group: str, member: str, rng: random.Random
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What a member may do next, right or wrong; the dice fall the same way in any case."""
    topics = sorted(rng.sample(sorted(TOPICS), rng.randint(1, 3)))
    assignor = rng.choice(["uniform", "uniform", "range"])
    number, offset = rng.randrange(3), rng.randrange(100)
    epoch = s.epochs.get((group, member), 1)
    owned = s.owned.get((group, member), {})
    part = {t: numbers[: rng.randint(0, len(numbers))] for t, numbers in owned.items()}
    if (group, member) not in s.epochs:
        yield "beat", lambda: s.join(group, member, topics=topics, server_assignor=assignor)
        yield "ghost", lambda: s.heartbeat("ghost", group, member, epoch, owned={})
        return
    yield "beat", lambda: s.beat(group, member)
    yield "short", lambda: s.beat(group, member, owned=None)
    yield "part", lambda: s.beat(group, member, owned=part)
    yield "topics", lambda: s.beat(group, member, topics=topics)
    yield "assignor", lambda: s.beat(group, member, server_assignor=assignor)
    yield "stale", lambda: s.heartbeat("stale", group, member, epoch - 1, owned=owned)
    yield "future", lambda: s.heartbeat("future", group, member, epoch + 1, owned=owned)
    yield "again", lambda: s.join(group, member, topics=topics)
    yield "leave", lambda: s.heartbeat("leave", group, member, -1)
    own = owned.get("t1", [])
    if own:
        mine = own[number % len(own)]
        yield "commit", lambda: s.commit(group, member, epoch, "t1", {mine: offset})
    yield "stale commit", lambda: s.commit(group, member, epoch - 1, "t1", {number: offset})
    yield "offsets", lambda: s.fetch_offsets(group, member, epoch, "t1")
    yield "describe", lambda: s.describe(group)
