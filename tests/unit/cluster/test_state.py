"""The metadata state machine: a snapshot equals the replay that led to it."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.brokers import Broker
from penstock.cluster.lock import Lock
from penstock.cluster.records import (
    BrokerConfigStored,
    BrokerRemoved,
    BrokerStored,
    ClientMetricsStored,
    ClusterRecord,
    ClusterRecordCodec,
    LockRemoved,
    LockStored,
    ProducerIdsTaken,
    TopicRemoved,
    TopicStored,
    UnreadableRecord,
)
from penstock.cluster.state import ClusterState
from penstock.cluster.topic import Assignment, Topic
from penstock.cluster.topic_names import collision_key
from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId, DirectoryId, ReplicaId, TopicId, TopicName

IDS = [TopicId(UUID(int=number)) for number in range(1, 5)]
CONFIGS = st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3), max_size=2)
NODES = st.integers(0, 4).map(BrokerId)
PLACES = st.lists(NODES, min_size=1, max_size=3, unique=True).map(tuple)
REPLICA_IDS = st.builds(ReplicaId, NODES, st.sampled_from(["x", "y"]).map(DirectoryId))
ENDPOINTS = st.builds(Endpoint, st.sampled_from(["localhost", "::1"]), st.integers(1, 65_535))

assignments = st.builds(
    Assignment,
    replicas=PLACES,
    founders=st.lists(REPLICA_IDS, min_size=1, max_size=3, unique=True).map(tuple),
    previous=st.none() | PLACES,
)
brokers = st.builds(
    Broker,
    id=NODES,
    directory=st.sampled_from(["x", "y"]).map(DirectoryId),
    kafka=ENDPOINTS,
    peer=ENDPOINTS,
    rack=st.none() | st.text(max_size=3),
)


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    topic_id = draw(st.sampled_from(IDS))
    return Topic(
        # One name per id, as decisions see to it.
        name=TopicName(f"topic.{topic_id.int}"),
        topic_id=topic_id,
        assignments=tuple(draw(st.lists(assignments, min_size=1, max_size=4))),
        configs=draw(CONFIGS),
        internal=draw(st.booleans()),
    )


# Tokens are handed out once.
locks = st.builds(
    Lock,
    name=st.sampled_from(["a", "b"]),
    owner=st.text(max_size=3),
    fencing_token=st.integers(1, 2**62),
    lease_ms=st.integers(1_000, 9_000),
)


RECORDS: st.SearchStrategy[ClusterRecord] = st.one_of(
    st.builds(TopicStored, topic=topics()),
    st.builds(TopicRemoved, topic_id=st.sampled_from(IDS)),
    st.builds(BrokerStored, broker=brokers),
    st.builds(BrokerRemoved, broker=NODES),
    st.builds(BrokerConfigStored, broker=st.sampled_from(["", "0"]), configs=CONFIGS),
    st.builds(ClientMetricsStored, name=st.sampled_from(["a", "b"]), configs=CONFIGS),
    st.builds(ProducerIdsTaken, next_producer_id=st.integers(0, 2**62)),
    st.builds(LockStored, lock=locks),
    st.builds(LockRemoved, name=st.sampled_from(["a", "b"])),
)


def replay(records: list[ClusterRecord]) -> ClusterState:
    state = ClusterState()
    for record in records:
        state.apply(record)
    return state


def seen(state: ClusterState) -> object:
    names = {topic.name: state.topic(topic.name) for topic in state.topics.values()}
    collisions = {name: state.colliding_name(collision_key(name)) for name in names}
    return (
        state.topics,
        names,
        collisions,
        state.brokers,
        state.removed_brokers,
        +state.replica_counts,
        +state.preferred_counts,
        state.broker_configs,
        state.next_producer_id,
        state.locks,
    )


@given(records=st.lists(RECORDS, max_size=30))
def test_a_restored_snapshot_equals_the_replay(records: list[ClusterRecord]) -> None:
    state = replay(records)
    restored = ClusterState()
    restored.restore(state.snapshot()())
    assert seen(restored) == seen(state)


@given(records=st.lists(RECORDS, max_size=30), cut=st.integers(0, 30))
def test_a_snapshot_in_the_middle_changes_nothing(records: list[ClusterRecord], cut: int) -> None:
    state, restored = replay(records[:cut]), ClusterState()
    encode = state.snapshot()
    for record in records[cut:]:
        state.apply(record)
    # It is of the moment when it was taken, whenever bytes are made of it.
    restored.restore(encode())
    assert seen(restored) == seen(replay(records[:cut]))
    for record in records[cut:]:
        restored.apply(record)
    assert seen(restored) == seen(state)


@given(records=st.lists(RECORDS, max_size=30))
def test_a_compacted_log_leads_to_the_same_state(records: list[ClusterRecord]) -> None:
    """Compaction keeps the last record of each key, where it stood."""
    codec = ClusterRecordCodec()
    last = {codec.encode(record)[0]: position for position, record in enumerate(records)}
    kept = [records[position] for position in sorted(last.values())]
    assert seen(replay(kept)) == seen(replay(records))


@given(record=RECORDS)
def test_records_survive_the_log(record: ClusterRecord) -> None:
    codec = ClusterRecordCodec()
    decoded = codec.decode(*codec.encode(record))
    assert (type(decoded), decoded) == (type(record), record)


@given(records=st.lists(RECORDS, max_size=30))
def test_replicas_are_counted_where_they_lie(records: list[ClusterRecord]) -> None:
    state = replay(records)
    placed = [each for topic in state.topics.values() for each in topic.assignments]
    assert +state.replica_counts == Counter(node for each in placed for node in each.hosts)
    assert +state.preferred_counts == Counter(each.replicas[0] for each in placed)


def test_a_removed_broker_is_told_from_one_that_never_came() -> None:
    state = ClusterState()
    broker = Broker(
        id=BrokerId(1),
        directory=DirectoryId("d"),
        kafka=Endpoint("a", 1),
        peer=Endpoint("a", 2),
    )
    state.apply(BrokerStored(broker=broker))
    state.apply(BrokerRemoved(broker=BrokerId(1)))
    assert (state.brokers, state.removed_brokers) == ({}, {1})
    state.apply(BrokerStored(broker=broker))
    assert (state.brokers, state.removed_brokers) == ({1: broker}, set())


def test_drained_brokers_are_not_usable() -> None:
    state = ClusterState()
    for number in (2, 0, 1):
        endpoint = Endpoint("a", 1)
        broker = Broker(
            id=BrokerId(number), directory=DirectoryId("d"), kafka=endpoint, peer=endpoint
        )
        state.apply(BrokerStored(broker=broker))
    state.apply(BrokerConfigStored(broker="1", configs={"penstock.drained": "true"}))
    assert [broker.id for broker in state.usable_brokers()] == [0, 2]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b'["topic","00000000000000000000000000000001"]', b'{"version":2}'),
        (b'["what","x"]', b'{"version":1}'),
        (b'["producer-ids"]', None),
        (b'["broker","1"]', None),
    ],
)
def test_records_of_a_later_release_are_not_guessed_at(key: bytes | None, value: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        ClusterRecordCodec().decode(key, value)


def test_ten_thousand_partitions_name_each_founder_once() -> None:
    founders = tuple(ReplicaId(BrokerId(n), DirectoryId(f"directory-{n}")) for n in range(3))
    assignment = Assignment(tuple(founder.node for founder in founders), founders)
    topic = Topic(
        name=TopicName("t"),
        topic_id=IDS[0],
        assignments=(assignment,) * 10_000,
        configs={},
        internal=False,
    )
    _, value = ClusterRecordCodec().encode(TopicStored(topic=topic))
    assert value is not None
    assert len(value) < 300_000
