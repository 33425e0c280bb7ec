"""Settings of groups: checked within the broker's bounds, stored, and acting within them."""

import pytest

from penstock.cluster.config_decisions import (
    ConfigRules,
    Edit,
    GroupResource,
    Operation,
    decide_edits,
    decide_replacement,
)
from penstock.cluster.config_definitions import validate_static
from penstock.cluster.group_settings import (
    ASSIGNMENT_INTERVAL_MS,
    GROUPS_MAX,
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    check_group_configs,
    effective_group_setting,
)
from penstock.cluster.records import ClusterRecordCodec, GroupConfigStored
from penstock.cluster.state import ClusterState
from penstock.model.errors import Reason, Refused, StartRefused

G = GroupResource("g")
RULES = ConfigRules(brokers=(), broker_settings={})


def test_values_are_kept_in_normal_form() -> None:
    checked = check_group_configs("g", {SESSION_TIMEOUT_MS: " 050000 "}, {})
    assert checked == {SESSION_TIMEOUT_MS: "50000"}


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        (SESSION_TIMEOUT_MS, "44999", "must be greater than or equal to group.consumer.min.sess"),
        (SESSION_TIMEOUT_MS, "60001", "must be less than or equal to group.consumer.max.session"),
        (HEARTBEAT_INTERVAL_MS, "4999", "must be greater than or equal to group.consumer.min.hea"),
        (HEARTBEAT_INTERVAL_MS, "15001", "must be less than or equal to group.consumer.max.heart"),
        (ASSIGNMENT_INTERVAL_MS, "15001", "must be less than or equal to group.consumer.max.assi"),
        (ASSIGNMENT_INTERVAL_MS, "-1", "Value must be at least 0"),
        (SESSION_TIMEOUT_MS, "0", "Value must be at least 1"),
        (SESSION_TIMEOUT_MS, "soon", "Not a number of type INT"),
        ("share.session.timeout.ms", "44999", "must be greater than or equal to group.share.min."),
        ("share.heartbeat.interval.ms", "15001", "must be less than or equal to group.share.max."),
        ("share.record.lock.duration.ms", "14999", "must be greater than or equal to group.share."),
        ("share.record.lock.duration.ms", "999", "Value must be at least 1000"),
        ("share.delivery.count.limit", "11", "must be less than or equal to group.share.max.deli"),
        ("share.partition.max.record.locks", "4001", "must be less than or equal to group.share."),
        ("share.isolation.level", "READ_COMMITTED", "must be one of: read_committed, read_uncomm"),
        ("share.renew.acknowledge.enable", "1", "either true or false"),
        ("no.such", "1", "Unknown group config name: no.such"),
    ],
)
def test_a_bad_value_is_refused(name: str, text: str, fault: str) -> None:
    with pytest.raises(Refused, match=fault) as caught:
        check_group_configs("g", {name: text}, {})
    assert caught.value.reason is Reason.INVALID_CONFIG


def test_a_session_has_to_outlast_a_heartbeat() -> None:
    broker = {"group.consumer.min.session.timeout.ms": "1000"}
    with pytest.raises(Refused, match=r"must be greater than consumer\.heartbeat"):
        check_group_configs("g", {SESSION_TIMEOUT_MS: "5000"}, broker)


@pytest.mark.parametrize("group", ["", "g" * 2_000], ids=["empty", "long"])
def test_a_group_has_a_name_of_some_length(group: str) -> None:
    with pytest.raises(Refused) as caught:
        check_group_configs(group, {SESSION_TIMEOUT_MS: "50000"}, {})
    assert caught.value.reason is Reason.INVALID_REQUEST


def test_the_groups_own_value_acts_within_the_bounds_of_the_broker() -> None:
    broker = {"group.consumer.session.timeout.ms": "47000"}
    assert effective_group_setting(SESSION_TIMEOUT_MS, {}, {}) == "45000"
    assert effective_group_setting(SESSION_TIMEOUT_MS, {}, broker) == "47000"
    own = {SESSION_TIMEOUT_MS: "50000"}
    assert effective_group_setting(SESSION_TIMEOUT_MS, own, broker) == "50000"
    narrow = {**broker, "group.consumer.max.session.timeout.ms": "48000"}
    assert effective_group_setting(SESSION_TIMEOUT_MS, own, narrow) == "48000"


def test_settings_are_edited_replaced_and_gone_when_there_are_none() -> None:
    state = ClusterState()

    def edit(*edits: Edit) -> None:
        for record in decide_edits(state, G, edits, RULES):
            state.apply(record)

    edit(Edit(SESSION_TIMEOUT_MS, Operation.SET, "50000"))
    edit(Edit(HEARTBEAT_INTERVAL_MS, Operation.SET, "6000"), Edit("gone", Operation.DELETE, None))
    assert state.group_configs == {
        "g": {SESSION_TIMEOUT_MS: "50000", HEARTBEAT_INTERVAL_MS: "6000"}
    }
    assert decide_edits(state, G, [Edit(SESSION_TIMEOUT_MS, Operation.SET, "50000")], RULES) == []
    restored = ClusterState()
    restored.restore(state.snapshot()())
    assert restored.group_configs == state.group_configs
    for record in decide_replacement(state, G, {}, RULES):
        state.apply(record)
    assert state.group_configs == {}


@pytest.mark.parametrize("operation", [Operation.APPEND, Operation.SUBTRACT])
def test_none_of_them_is_a_list(operation: Operation) -> None:
    with pytest.raises(Refused) as caught:
        decide_edits(ClusterState(), G, [Edit(SESSION_TIMEOUT_MS, operation, "1")], RULES)
    assert caught.value.reason is Reason.INVALID_CONFIG


def test_the_number_of_groups_with_settings_is_bounded() -> None:
    state = ClusterState()
    for number in range(GROUPS_MAX):
        state.apply(GroupConfigStored(group=str(number), configs={SESSION_TIMEOUT_MS: "50000"}))
    with pytest.raises(Refused) as caught:
        decide_replacement(state, G, {SESSION_TIMEOUT_MS: "50000"}, RULES)
    assert caught.value.reason is Reason.POLICY_VIOLATION
    assert decide_replacement(state, GroupResource("7"), {SESSION_TIMEOUT_MS: "51000"}, RULES)


@pytest.mark.parametrize("configs", [{}, {SESSION_TIMEOUT_MS: "50000"}])
def test_records_survive_the_log(configs: dict[str, str]) -> None:
    codec, record = ClusterRecordCodec(), GroupConfigStored(group="g", configs=configs)
    assert codec.decode(*codec.encode(record)) == record


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"group.consumer.session.timeout.ms": "70000"}, "must be between"),
        ({"group.consumer.min.session.timeout.ms": "50000"}, "must be between"),
        ({"group.consumer.max.heartbeat.interval.ms": "4000"}, "must be greater than or equal to"),
        ({"group.consumer.migration.policy": "sometimes"}, "must be one of"),
        ({"group.consumer.assignors": ""}, "must not be empty"),
        ({"group.consumer.max.size": "0"}, "must be at least 1"),
        ({"group.share.session.timeout.ms": "61000"}, "must be between"),
        ({"group.share.max.size": "1001"}, "must be no more than 1000"),
        (
            {
                "group.share.min.session.timeout.ms": "1",
                "group.share.session.timeout.ms": "5000",
            },
            "group.share.session.timeout.ms must be greater than group.share.heartbeat.interval.ms",
        ),
        ({"group.share.record.lock.duration.ms": "61000"}, "must be between"),
        ({"group.share.max.delivery.count.limit": "26"}, "must be no more than 25"),
        ({"group.share.max.share.sessions": "0"}, "must be at least 1"),
        ({"group.share.max.share.sessions": "199"}, "must be greater than or equal to group.share"),
    ],
)
def test_a_node_with_settings_that_do_not_fit_does_not_start(
    settings: dict[str, str], fault: str
) -> None:
    with pytest.raises(StartRefused, match=fault):
        validate_static(settings)


def test_settings_that_fit_are_taken() -> None:
    given = {
        "group.consumer.session.timeout.ms": "100000",
        "group.consumer.max.session.timeout.ms": "200000",
        "group.consumer.migration.policy": "Upgrade",
        "group.consumer.assignors": "range",
    }
    assert validate_static(given) == given
