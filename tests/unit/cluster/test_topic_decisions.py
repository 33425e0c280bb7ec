"""What is decided about topics: creation, growth, deletion, and their refusals."""

from collections.abc import Sequence

import pytest

from penstock.cluster.records import ClusterRecord, FilesDoomed, TopicRemoved, TopicStored
from penstock.cluster.state import ClusterState
from penstock.cluster.topic import Topic
from penstock.cluster.topic_decisions import (
    Growth,
    NewTopic,
    Outcome,
    Rules,
    decide_creation,
    decide_deletion,
    decide_growth,
    decide_ready,
    decide_withdrawal,
)
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, TopicId, TopicName
from penstock.model.limits import PARTITIONS_PER_NODE_MAX, PARTITIONS_PER_TOPIC_MAX
from tests.unit.cluster.fakes import ids_from


def rules(**changes: object) -> Rules:
    new_uuid = ids_from()
    values = {
        "brokers": (BrokerId(0),),
        "partitions_default": 3,
        "replication_factor_default": 1,
        "broker_settings": {},
        "new_topic_id": lambda: TopicId(new_uuid()),
    }
    return Rules(**{**values, **changes})  # type: ignore[arg-type]


def new(name: str, **more: object) -> NewTopic:
    return NewTopic(name=name, **{"configs": {}, **more})  # type: ignore[arg-type]


def applied(state: ClusterState, records: Sequence[ClusterRecord]) -> None:
    for record in records:
        state.apply(record)


def with_topics(*names: str, partitions: int = 1) -> ClusterState:
    state = ClusterState()
    wanted = [new(name, partitions=partitions) for name in names]
    records, outcomes = decide_creation(state, wanted, rules())
    applied(state, records)
    applied(state, decide_ready(state, topics_of(outcomes.values()))[0])
    return state


def topics_of(outcomes: object) -> list[Topic]:
    return [outcome for outcome in outcomes if isinstance(outcome, Topic)]  # type: ignore[attr-defined]


def refusal(outcome: Outcome) -> tuple[Reason, str]:
    assert isinstance(outcome, Refused)
    return outcome.reason, outcome.detail


def reason_of(state: ClusterState, wanted: NewTopic, **changes: object) -> Reason:
    records, outcomes = decide_creation(state, [wanted], rules(**changes))
    assert records == []
    return refusal(outcomes[wanted.name])[0]


# Creating


def test_a_new_topic_takes_the_defaults_and_is_not_ready() -> None:
    records, outcomes = decide_creation(
        ClusterState(), [new("t", configs={"flush.ms": "+7"})], rules()
    )
    topic = outcomes["t"]
    assert isinstance(topic, Topic)
    assert (topic.partitions, topic.ready, topic.internal) == (3, 0, False)
    assert topic.configs == {"flush.ms": "7"}
    assert records == [TopicStored(topic=topic)]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (new(""), Reason.INVALID_TOPIC),
        (new("no spaces"), Reason.INVALID_TOPIC),
        (new("x" * 250), Reason.INVALID_TOPIC),
        (new("old"), Reason.TOPIC_ALREADY_EXISTS),
        (new("a_b"), Reason.INVALID_TOPIC),
        (new("__consumer_offsets"), Reason.INVALID_REQUEST),
        (new("__cluster_metadata"), Reason.INVALID_REQUEST),
        (new("t", partitions=0), Reason.INVALID_PARTITIONS),
        (new("t", partitions=-2), Reason.INVALID_PARTITIONS),
        (new("t", partitions=PARTITIONS_PER_TOPIC_MAX + 1), Reason.INVALID_PARTITIONS),
        (new("t", replication_factor=0), Reason.INVALID_REPLICATION_FACTOR),
        (new("t", replication_factor=-2), Reason.INVALID_REPLICATION_FACTOR),
        (new("t", replication_factor=2), Reason.INVALID_REPLICATION_FACTOR),
        (new("t", configs={"no.such": "1"}), Reason.INVALID_CONFIG),
        (new("t", configs={"flush.ms": None}), Reason.INVALID_CONFIG),
        (new("t", assignments=[(0, [0])], partitions=1), Reason.INVALID_REQUEST),
        (new("t", assignments=[(0, [0])], replication_factor=1), Reason.INVALID_REQUEST),
        (new("t", assignments=[(0, [5])]), Reason.INVALID_REPLICA_ASSIGNMENT),
        (new("t", assignments=[(0, [])]), Reason.INVALID_REPLICA_ASSIGNMENT),
        (new("t", assignments=[(0, [0, 0])]), Reason.INVALID_REPLICA_ASSIGNMENT),
        (new("t", assignments=[(1, [0])]), Reason.INVALID_REPLICA_ASSIGNMENT),
        (new("t", assignments=[(0, [0]), (0, [0])]), Reason.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_bad_topic_is_refused(wanted: NewTopic, reason: Reason) -> None:
    assert reason_of(with_topics("old", "a.b"), wanted) == reason


def test_the_refusal_of_a_replication_factor_tells_the_number_of_brokers() -> None:
    _, outcomes = decide_creation(ClusterState(), [new("t", replication_factor=3)], rules())
    assert "3 time(s): this cluster has 1 broker(s)" in refusal(outcomes["t"])[1]


def test_a_default_replication_factor_beyond_the_brokers_is_refused_too() -> None:
    reason = reason_of(ClusterState(), new("t"), replication_factor_default=3)
    assert reason == Reason.INVALID_REPLICATION_FACTOR


def test_replicas_must_be_of_one_number() -> None:
    wanted = new("t", assignments=[(0, [0]), (1, [0, 1])])
    reason = reason_of(ClusterState(), wanted, brokers=(BrokerId(0), BrokerId(1)))
    assert reason == Reason.INVALID_REPLICA_ASSIGNMENT


def test_a_manual_assignment_gives_the_number_of_partitions() -> None:
    wanted = new("t", assignments=[(1, [0]), (0, [0])])
    _, outcomes = decide_creation(ClusterState(), [wanted], rules())
    assert topics_of(outcomes.values())[0].partitions == 2


def test_one_bad_topic_does_not_stop_the_others() -> None:
    wanted = [new("good"), new("bad", partitions=0), new("good.too")]
    records, outcomes = decide_creation(ClusterState(), wanted, rules())
    assert len(records) == 2
    assert list(outcomes) == ["good", "bad", "good.too"]
    assert isinstance(outcomes["bad"], Refused)


def test_a_name_given_twice_is_refused_once_and_made_never() -> None:
    records, outcomes = decide_creation(ClusterState(), [new("t"), new("t")], rules())
    assert records == []
    assert refusal(outcomes["t"])[0] == Reason.INVALID_REQUEST


def test_names_of_one_request_can_collide() -> None:
    _, outcomes = decide_creation(ClusterState(), [new("a.b"), new("a_b")], rules())
    assert isinstance(outcomes["a.b"], Topic)
    assert refusal(outcomes["a_b"]) == (
        Reason.INVALID_TOPIC,
        "Topic 'a_b' collides with existing topic: a.b",
    )


def test_the_partitions_of_a_node_are_bounded_over_all_topics_of_a_request() -> None:
    wanted = [
        new(f"t{number}", partitions=PARTITIONS_PER_TOPIC_MAX)
        for number in range(PARTITIONS_PER_NODE_MAX // PARTITIONS_PER_TOPIC_MAX + 1)
    ]
    _, outcomes = decide_creation(ClusterState(), wanted, rules())
    reasons = [refusal(o)[0] for o in outcomes.values() if isinstance(o, Refused)]
    assert reasons == [Reason.INVALID_PARTITIONS]


def test_only_the_broker_makes_internal_topics() -> None:
    wanted = new("__consumer_offsets", internal=True)
    _, outcomes = decide_creation(ClusterState(), [wanted], rules())
    assert topics_of(outcomes.values())[0].internal
    assert reason_of(ClusterState(), new("mine", internal=True)) == Reason.INVALID_REQUEST


def test_an_abandoned_topic_makes_room_for_one_of_its_name() -> None:
    state = ClusterState()
    records, outcomes = decide_creation(state, [new("t")], rules())
    applied(state, records)
    abandoned = topics_of(outcomes.values())[0].topic_id
    assert reason_of(state, new("t")) == Reason.TOPIC_ALREADY_EXISTS
    fresh = rules(new_topic_id=lambda: TopicId(ids_from(77)()))
    records, outcomes = decide_creation(state, [new("t")], fresh, [abandoned])
    applied(state, records)
    assert state.topic("t") == outcomes["t"]
    assert list(state.topics) != [abandoned]
    assert state.doomed == {abandoned}


# Growing


def grown(state: ClusterState, *wanted: Growth) -> dict[str, Outcome]:
    records, outcomes = decide_growth(state, wanted, rules())
    assert len(records) == len(topics_of(outcomes.values()))
    applied(state, records)
    return outcomes


def test_a_grown_topic_is_served_as_before_until_it_is_ready() -> None:
    state = with_topics("t", partitions=2)
    topic = topics_of(grown(state, Growth(name="t", partitions=5)).values())[0]
    assert (topic.ready, topic.partitions) == (2, 5)
    applied(state, decide_ready(state, [topic])[0])
    now = state.topic("t")
    assert now is not None
    assert (now.ready, now.partitions) == (5, 5)


@pytest.mark.parametrize(
    ("growth", "reason"),
    [
        (Growth(name="none", partitions=5), Reason.UNKNOWN_TOPIC_OR_PARTITION),
        (Growth(name="t", partitions=2), Reason.INVALID_PARTITIONS),
        (Growth(name="t", partitions=1), Reason.INVALID_PARTITIONS),
        (Growth(name="t", partitions=PARTITIONS_PER_TOPIC_MAX + 1), Reason.INVALID_PARTITIONS),
        (Growth(name="t", partitions=4, assignments=[[0]]), Reason.INVALID_REPLICA_ASSIGNMENT),
        (Growth(name="t", partitions=3, assignments=[[9]]), Reason.INVALID_REPLICA_ASSIGNMENT),
        (Growth(name="t", partitions=3, assignments=[[0, 0]]), Reason.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_bad_growth_is_refused(growth: Growth, reason: Reason) -> None:
    outcomes = grown(with_topics("t", partitions=2), growth)
    assert refusal(outcomes[growth.name])[0] == reason


def test_one_topic_grown_twice_in_a_request_is_refused() -> None:
    state = with_topics("t")
    outcomes = grown(state, Growth(name="t", partitions=3), Growth(name="t", partitions=4))
    assert refusal(outcomes["t"])[0] == Reason.INVALID_REQUEST


def test_a_failed_growth_is_taken_back_or_asked_for_again() -> None:
    state = with_topics("t", partitions=2)
    topic = topics_of(grown(state, Growth(name="t", partitions=5)).values())[0]
    # Left as it is, the same growth can be asked for again.
    assert topics_of(grown(state, Growth(name="t", partitions=4)).values())[0].partitions == 4
    applied(state, decide_withdrawal(state, [topic])[0])
    now = state.topic("t")
    assert now is not None
    assert (now.ready, now.partitions) == (2, 2)


def test_internal_topics_do_not_grow() -> None:
    state = ClusterState()
    records, outcomes = decide_creation(state, [new("__consumer_offsets", internal=True)], rules())
    applied(state, records)
    applied(state, decide_ready(state, topics_of(outcomes.values()))[0])
    outcomes = grown(state, Growth(name="__consumer_offsets", partitions=9))
    assert refusal(outcomes["__consumer_offsets"])[0] == Reason.INVALID_REQUEST


def test_readiness_keeps_settings_that_changed_meanwhile() -> None:
    state = ClusterState()
    records, outcomes = decide_creation(state, [new("t")], rules())
    applied(state, records)
    topic = topics_of(outcomes.values())[0]
    changed = Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=topic.partitions,
        ready=0,
        configs={"flush.ms": "9"},
        internal=False,
    )
    state.apply(TopicStored(topic=changed))
    applied(state, decide_ready(state, [topic])[0])
    now = state.topic("t")
    assert now is not None
    assert now.is_finished
    assert now.configs == {"flush.ms": "9"}


def test_a_topic_deleted_while_it_was_made_stays_deleted() -> None:
    state = ClusterState()
    _, outcomes = decide_creation(state, [new("t")], rules())
    assert decide_ready(state, topics_of(outcomes.values()))[0] == []
    assert decide_withdrawal(state, topics_of(outcomes.values()))[0] == []


# Deleting


def test_topics_are_deleted_by_name_and_by_id() -> None:
    state = with_topics("a", "b")
    b = state.topic("b")
    assert b is not None
    records, outcomes = decide_deletion(state, [TopicName("a"), b.topic_id])
    assert [o.name for o in topics_of(outcomes)] == ["a", "b"]
    applied(state, records)
    assert state.topics == {}
    assert len(state.doomed) == 2


def test_deleting_dooms_the_files_in_the_same_commit() -> None:
    state = with_topics("a")
    a = state.topic("a")
    assert a is not None
    records, _ = decide_deletion(state, [TopicName("a")])
    assert [type(record) for record in records] == [TopicRemoved, FilesDoomed]
    assert records == [(a.topic_id,), (a.topic_id,)]


def test_deletions_that_are_refused() -> None:
    state = with_topics("a")
    a = state.topic("a")
    assert a is not None
    records, outcomes = decide_creation(
        state,
        [new("__consumer_offsets", internal=True)],
        rules(new_topic_id=lambda: TopicId(ids_from(50)())),
    )
    applied(state, records)
    unready = topics_of(outcomes.values())[0]
    assert refusal(decide_deletion(state, [unready.name])[1][0])[0] == (
        Reason.UNKNOWN_TOPIC_OR_PARTITION
    )
    applied(state, decide_ready(state, [unready])[0])
    records, results = decide_deletion(
        state,
        [TopicName("a"), a.topic_id, TopicName("x"), TopicId(ids_from(99)()), unready.name],
    )
    assert len(records) == 2
    assert [refusal(outcome)[0] for outcome in results[1:]] == [
        Reason.INVALID_REQUEST,
        Reason.UNKNOWN_TOPIC_OR_PARTITION,
        Reason.UNKNOWN_TOPIC_ID,
        Reason.INVALID_REQUEST,
    ]
