"""What is decided about settings: replacing, editing, extending lists, and refusals."""

from uuid import UUID

import pytest

from penstock.cluster.config_decisions import (
    BrokerResource,
    ConfigRules,
    Edit,
    Operation,
    Resource,
    TopicResource,
    decide_edits,
    decide_replacement,
)
from penstock.cluster.records import BrokerConfigStored, TopicStored
from penstock.cluster.state import ClusterState
from penstock.cluster.topic import Assignment, Topic
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, TopicId, TopicName
from tests.unit.cluster.fakes import broker

T = TopicResource("t")
SET, DELETE, APPEND, SUBTRACT = Operation


def state_with(configs: dict[str, str]) -> ClusterState:
    state = ClusterState()
    topic = Topic(
        name=TopicName("t"),
        topic_id=TopicId(UUID(int=1)),
        assignments=(Assignment((BrokerId(0),), (broker(0).replica_id,)),),
        configs=configs,
        internal=False,
    )
    state.apply(TopicStored(topic=topic))
    return state


def rules(**broker_settings: str) -> ConfigRules:
    named = {name.replace("_", "."): text for name, text in broker_settings.items()}
    return ConfigRules(brokers=(BrokerId(0),), broker_settings=named)


def edited(
    configs: dict[str, str], *edits: Edit, resource: Resource = T, by: ConfigRules | None = None
) -> dict[str, str]:
    """The settings after the edits."""
    state = state_with(configs)
    for record in decide_edits(state, resource, edits, by or rules()):
        state.apply(record)
    topic = state.topic("t")
    assert topic is not None
    return dict(topic.configs if resource == T else state.broker_config(resource.name))


def refused(*edits: Edit, resource: Resource = T) -> Refused:
    with pytest.raises(Refused) as caught:
        edited({}, *edits, resource=resource)
    return caught.value


def test_replacing_resets_what_is_not_named() -> None:
    state = state_with({"flush.ms": "5", "retention.ms": "6"})
    (record,) = decide_replacement(state, T, {"retention.ms": " 7 "}, rules())
    assert isinstance(record, TopicStored)
    assert record.topic.configs == {"retention.ms": "7"}


def test_asking_for_what_is_so_appends_nothing() -> None:
    state = state_with({"flush.ms": "5"})
    assert decide_replacement(state, T, {"flush.ms": "+5"}, rules()) == []
    assert decide_edits(state, T, [Edit("flush.ms", SET, "5")], rules()) == []
    assert decide_edits(state, T, [Edit("retention.ms", DELETE, None)], rules()) == []


@pytest.mark.parametrize("resource", [T, BrokerResource(""), BrokerResource("0")])
def test_taking_away_a_setting_that_does_not_exist_changes_nothing(resource: Resource) -> None:
    """As a tool does that knows a setting from another version of Kafka."""
    state = state_with({"flush.ms": "5"})
    assert decide_edits(state, resource, [Edit("no.such", DELETE, None)], rules()) == []


def test_edits_leave_the_other_settings_alone() -> None:
    before = {"flush.ms": "5", "retention.ms": "6"}
    after = edited(before, Edit("flush.ms", DELETE, None), Edit("segment.ms", SET, "9"))
    assert after == {"retention.ms": "6", "segment.ms": "9"}


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        ({}, Edit("cleanup.policy", APPEND, "compact"), "delete,compact"),
        ({"cleanup.policy": "compact"}, Edit("cleanup.policy", APPEND, "compact"), "compact"),
        (
            {"cleanup.policy": "compact"},
            Edit("cleanup.policy", APPEND, " delete "),
            "compact,delete",
        ),
        ({}, Edit("cleanup.policy", SUBTRACT, "delete"), ""),
        (
            {"cleanup.policy": "compact,delete"},
            Edit("cleanup.policy", SUBTRACT, "delete"),
            "compact",
        ),
        ({"cleanup.policy": "compact"}, Edit("cleanup.policy", SUBTRACT, "delete"), "compact"),
    ],
)
def test_lists_are_extended_and_shortened(before: dict[str, str], edit: Edit, after: str) -> None:
    assert edited(before, edit) == {"cleanup.policy": after}


def test_a_list_that_is_not_set_is_extended_from_the_brokers_value() -> None:
    after = edited(
        {}, Edit("cleanup.policy", APPEND, "delete"), by=rules(log_cleanup_policy="compact")
    )
    assert after == {"cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    ("edits", "reason", "said"),
    [
        ([Edit("no.such", SET, "1")], Reason.INVALID_CONFIG, "no.such"),
        ([Edit("flush.ms", SET, "x")], Reason.INVALID_CONFIG, "Invalid value x for configuration"),
        ([Edit("flush.ms", SET, None)], Reason.INVALID_REQUEST, "flush.ms"),
        ([Edit("flush.ms", APPEND, None)], Reason.INVALID_REQUEST, "flush.ms"),
        ([Edit("flush.ms", APPEND, "1")], Reason.INVALID_CONFIG, "its type is not LIST"),
        (
            [Edit("flush.ms", SUBTRACT, "1")],
            Reason.INVALID_CONFIG,
            "Can't SUBTRACT to key flush.ms",
        ),
        ([Edit("cleanup.policy", APPEND, "burn")], Reason.INVALID_CONFIG, "cleanup.policy"),
        (
            [Edit("flush.ms", SET, "1"), Edit("flush.ms", DELETE, None)],
            Reason.INVALID_REQUEST,
            "more than once",
        ),
    ],
)
def test_bad_edits_change_nothing(edits: list[Edit], reason: Reason, said: str) -> None:
    error = refused(Edit("retention.ms", SET, "5"), *edits)
    assert error.reason == reason
    assert said in error.detail


@pytest.mark.parametrize(
    ("resource", "reason"),
    [
        (TopicResource("none"), Reason.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicResource("bad name"), Reason.INVALID_TOPIC),
        (BrokerResource("5"), Reason.INVALID_REQUEST),
        (BrokerResource("zero"), Reason.INVALID_REQUEST),
    ],
)
def test_unknown_resources(resource: Resource, reason: Reason) -> None:
    state = state_with({})
    for decide, change in ((decide_replacement, {}), (decide_edits, [])):
        with pytest.raises(Refused) as caught:
            decide(state, resource, change, rules())  # type: ignore[arg-type]
        assert caught.value.reason == reason


def test_a_topic_that_is_being_made_has_no_settings_to_change() -> None:
    with pytest.raises(Refused) as caught:
        decide_replacement(ClusterState(), T, {}, rules())
    assert caught.value.reason == Reason.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("broker", ["", "0"])
def test_brokers_have_dynamic_settings_each_or_together(broker: str) -> None:
    state = ClusterState()
    resource = BrokerResource(broker)
    (record,) = decide_replacement(state, resource, {"log.retention.hours": "5"}, rules())
    assert record == BrokerConfigStored(broker=broker, configs={"log.retention.hours": "5"})
    state.apply(record)
    edit = Edit("log.cleanup.policy", APPEND, "compact")
    (record,) = decide_edits(state, resource, [edit], rules())
    state.apply(record)
    assert state.broker_config(broker) == {
        "log.retention.hours": "5",
        "log.cleanup.policy": "delete,compact",
    }
    (record,) = decide_replacement(state, resource, {}, rules())
    state.apply(record)
    assert state.broker_configs == {}


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("num.partitions", "5", Reason.INVALID_REQUEST),
        ("broker.id", "5", Reason.INVALID_REQUEST),
        ("no.such", "5", Reason.INVALID_CONFIG),
        ("log.retention.ms", "soon", Reason.INVALID_REQUEST),
        ("log.retention.ms", None, Reason.INVALID_REQUEST),
        ("log.cleaner.max.compaction.lag.ms", "0", Reason.INVALID_REQUEST),
        ("log.roll.hours", "0", Reason.INVALID_REQUEST),
    ],
)
def test_broker_settings_that_cannot_be_changed_now(
    name: str, value: str | None, reason: Reason
) -> None:
    """The reasons are those of Kafka's brokers, except for unknown settings, which those keep."""
    for resource in (BrokerResource(""), BrokerResource("0")):
        assert refused(Edit(name, SET, value), resource=resource).reason == reason
        with pytest.raises(Refused) as caught:
            decide_replacement(ClusterState(), resource, {name: value}, rules())
        assert caught.value.reason == reason


def test_broker_settings_must_not_contradict_each_other() -> None:
    by = rules(log_cleaner_min_compaction_lag_ms="9")
    edit = Edit("log.cleaner.max.compaction.lag.ms", SET, "1")
    with pytest.raises(Refused, match="conflict"):
        decide_edits(ClusterState(), BrokerResource(""), [edit], by)
