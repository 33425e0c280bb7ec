"""The metadata state machine: a snapshot equals the replay that led to it."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.records import (
    BrokerConfigStored,
    ClusterRecord,
    ClusterRecordCodec,
    FilesDoomed,
    FilesRemoved,
    ProducerIdsTaken,
    TopicRemoved,
    TopicStored,
    UnreadableRecord,
)
from penstock.cluster.state import ClusterState
from penstock.cluster.topic import Topic
from penstock.cluster.topic_names import collision_key
from penstock.model.ids import TopicId, TopicName

IDS = [TopicId(UUID(int=number)) for number in range(1, 5)]
CONFIGS = st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3), max_size=2)


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    topic_id = draw(st.sampled_from(IDS))
    partitions = draw(st.integers(1, 9))
    return Topic(
        # One name per id, as decisions see to it.
        name=TopicName(f"topic.{topic_id.int}"),
        topic_id=topic_id,
        partitions=partitions,
        ready=draw(st.integers(0, partitions)),
        configs=draw(CONFIGS),
        internal=draw(st.booleans()),
    )


RECORDS: st.SearchStrategy[ClusterRecord] = st.one_of(
    st.builds(TopicStored, topic=topics()),
    st.builds(TopicRemoved, topic_id=st.sampled_from(IDS)),
    st.builds(FilesDoomed, topic_id=st.sampled_from(IDS)),
    st.builds(FilesRemoved, topic_id=st.sampled_from(IDS)),
    st.builds(BrokerConfigStored, broker=st.sampled_from(["", "0"]), configs=CONFIGS),
    st.builds(ProducerIdsTaken, next_producer_id=st.integers(0, 2**62)),
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
        state.doomed,
        state.partition_count,
        state.broker_configs,
        state.next_producer_id,
    )


@given(records=st.lists(RECORDS, max_size=30))
def test_a_restored_snapshot_equals_the_replay(records: list[ClusterRecord]) -> None:
    state = replay(records)
    restored = ClusterState()
    restored.restore(state.snapshot())
    assert seen(restored) == seen(state)


@given(records=st.lists(RECORDS, max_size=30), cut=st.integers(0, 30))
def test_a_snapshot_in_the_middle_changes_nothing(records: list[ClusterRecord], cut: int) -> None:
    restored = ClusterState()
    restored.restore(replay(records[:cut]).snapshot())
    for record in records[cut:]:
        restored.apply(record)
    assert seen(restored) == seen(replay(records))


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
def test_partitions_are_counted(records: list[ClusterRecord]) -> None:
    state = replay(records)
    assert state.partition_count == sum(topic.partitions for topic in state.topics.values())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b'["topic","00000000000000000000000000000001"]', b'{"version":2}'),
        (b'["what","x"]', b'{"version":1}'),
        (b'["producer-ids"]', None),
    ],
)
def test_records_of_a_later_release_are_not_guessed_at(key: bytes | None, value: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        ClusterRecordCodec().decode(key, value)


def test_a_topic_is_served_as_far_as_it_is_made() -> None:
    def topic(ready: int) -> Topic:
        return Topic(
            name=TopicName("t"),
            topic_id=IDS[0],
            partitions=3,
            ready=ready,
            configs={},
            internal=False,
        )

    assert topic(0).as_served() is None
    assert topic(3).as_served() == topic(3)
    served = topic(2).as_served()
    assert served is not None
    assert (served.partitions, served.ready) == (2, 2)
