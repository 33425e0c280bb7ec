"""Proves that Kafka's own admin client manages topics, settings, records and groups."""

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients import Message
from tests.e2e.clients.java import Java, JavaError
from tests.e2e.clients.java.files import as_bytes, partition_folder
from tests.e2e.clients.java.member import LONG_SESSION_MS, JavaMember
from tests.e2e.clients.java.records import JavaClient
from tests.e2e.conftest import MakeTopic
from tests.e2e.ledger import Ledger
from tests.e2e.processes import Broker
from tests.waiting import wait_until

pytest_plugins = ("tests.e2e.clients.java.fixtures",)
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("java")]

Admin = Callable[..., Any]
# Recent, or retention would rightly take the records while a test looks at them.
TIME_MS = int(time.time()) * 1000 - 3_600_000


@pytest.fixture
def admin(java: Java, broker: Broker) -> Admin:
    """Runs one command of the admin client against the shared broker."""
    return lambda command, **arguments: java.call(command, broker.bootstrap, **arguments)


@pytest.fixture
def name() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def fill(java: Java, broker: Broker, topic: str, times_ms: list[int]) -> None:
    messages = [Message(value=b"x", timestamp_ms=time_ms) for time_ms in times_ms]
    JavaClient(java).produce(broker.bootstrap, topic, messages)


def test_topics_come_grow_and_go(admin: Admin, name: str) -> None:
    created = admin("create_topic", topic=name, partitions=2, configs={"retention.ms": "5000"})
    assert created["partitions"] == 2
    assert created["configs"]["retention.ms"] == "5000"
    admin("create_partitions", topic=name, partitions=4)
    described = admin("describe_topic", topic=name)
    assert described["id"] == created["id"]
    assert described["internal"] is False
    place = {"leader": 0, "replicas": [0], "isr": [0]}
    assert described["partitions"] == dict.fromkeys("0123", place)
    assert name in admin("list_topics")
    admin("delete_topic", topic=name)
    assert name not in admin("list_topics")
    with pytest.raises(JavaError, match="UnknownTopicOrPartitionException"):
        admin("describe_topic", topic=name)


def test_settings_are_set_appended_and_subtracted(admin: Admin, make_topic: MakeTopic) -> None:
    resource = {"kind": "TOPIC", "name": make_topic()}

    def alter(*changes: tuple[str, str, str | None]) -> None:
        admin("alter_configs", changes=changes, **resource)

    def setting(name: str) -> tuple[str, str]:
        entry = admin("describe_configs", **resource)[name]
        return entry["value"], entry["source"]

    alter(("APPEND", "cleanup.policy", "compact"), ("SET", "retention.ms", "7000"))
    assert setting("cleanup.policy") == ("delete,compact", "DYNAMIC_TOPIC_CONFIG")
    assert setting("retention.ms") == ("7000", "DYNAMIC_TOPIC_CONFIG")
    alter(("SUBTRACT", "cleanup.policy", "delete"), ("DELETE", "retention.ms", None))
    assert setting("cleanup.policy") == ("compact", "DYNAMIC_TOPIC_CONFIG")
    assert setting("retention.ms") == ("604800000", "DEFAULT_CONFIG")


def test_settings_of_the_broker_are_described(admin: Admin, broker: Broker) -> None:
    entries = admin("describe_configs", kind="BROKER", name="0")
    assert entries["log.dirs"]["value"] == str(broker.data_dir)
    assert entries["broker.id"] == {
        "value": "0",
        "source": "STATIC_BROKER_CONFIG",
        "type": "INT",
        "read_only": True,
    }


def test_offsets_are_listed_before_and_after_deleting_records(
    admin: Admin, java: Java, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    fill(java, broker, topic, [TIME_MS, TIME_MS + 5000, TIME_MS + 9000, TIME_MS + 7000])
    assert admin("list_offsets", topic=topic, at="earliest")[0] == 0
    assert admin("delete_records", topic=topic, before={"0": 1}) == {"0": 1}
    assert admin("list_offsets", topic=topic, at="earliest")[0] == 1
    assert admin("list_offsets", topic=topic, at="latest")[0] == 4
    assert admin("list_offsets", topic=topic, at="max_timestamp") == [2, TIME_MS + 9000]
    assert admin("list_offsets", topic=topic, at=str(TIME_MS)) == [1, TIME_MS + 5000]
    assert admin("list_offsets", topic=topic, at=str(TIME_MS + 9001)) == [-1, -1]


def test_producers_are_described(
    admin: Admin, java: Java, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    assert admin("describe_producers", topic=topic) == []
    fill(java, broker, topic, [TIME_MS, TIME_MS + 1, TIME_MS + 2])
    (producer,) = admin("describe_producers", topic=topic)
    assert producer["producer_id"] >= 0
    assert (producer["epoch"], producer["last_sequence"]) == (0, 2)
    assert producer["last_timestamp"] == TIME_MS + 2


def test_log_directories_are_described(
    admin: Admin, java: Java, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    fill(java, broker, topic, [TIME_MS])
    segments: dict[str, Path] = {}
    for partition in (0, 1):
        (segment,) = partition_folder(java, broker, topic, partition).glob("*.log")
        segments[f"{topic}-{partition}"] = segment

    def is_told_as_it_is() -> bool:
        described = admin("describe_log_dirs")[str(broker.data_dir)]
        assert described["usable_bytes"] > 0
        return all(
            described["sizes"][place] == segment.stat().st_size
            for place, segment in segments.items()
        )

    # A partition writes for itself too, when its leader begins.
    wait_until("the size on the disk", is_told_as_it_is, 60)


def test_the_cluster_is_described(admin: Admin, broker: Broker) -> None:
    cluster = admin("describe_cluster")
    assert len(as_bytes(cluster["id"])) == 16
    assert cluster["nodes"] == [0]
    assert cluster["controller"] == 0
    assert cluster["address"] == broker.bootstrap


def test_offsets_of_a_group_are_set_listed_and_deleted(
    admin: Admin, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=2)
    admin("alter_group_offsets", group=group, topic=topic, offsets={"0": 7, "1": 2})
    listed = admin("list_group_offsets", group=group)
    assert listed == {f"{topic}-0": [7, "by hand"], f"{topic}-1": [2, "by hand"]}
    admin("delete_group_offsets", group=group, topic=topic, partition=1)
    assert admin("list_group_offsets", group=group) == {f"{topic}-0": [7, "by hand"]}
    empty = {"type": "Classic", "protocol": "", "state": "Empty"}
    assert admin("list_groups")[group] == empty
    admin("delete_group", group=group)
    assert group not in admin("list_groups")
    with pytest.raises(JavaError, match="GroupIdNotFoundException"):
        admin("describe_group", group=group)


def test_a_group_at_work_is_described_and_guarded(
    admin: Admin, java: Java, broker: Broker, make_topic: MakeTopic, group: str
) -> None:
    """What would pull the rug from under a member is refused until the member has left."""
    topic = make_topic(partitions=2)
    ledger = Ledger(2)
    place = (broker.bootstrap, topic, group)
    # It must still be a member when it is removed, however long the steps before take.
    settings = {"group_instance_id": "desk", "session_timeout_ms": LONG_SESSION_MS}
    member = JavaMember(java, "worker", *place, "range", ledger, **settings)
    member.start()
    ledger.wait_until_balanced(1)
    assert admin("list_groups")[group] == {
        "type": "Classic",
        "protocol": "consumer",
        "state": "Stable",
    }
    assert admin("describe_group", group=group) == {
        "state": "Stable",
        "assignor": "range",
        "coordinator": 0,
        "members": [{"instance": "desk", "client": "worker", "partitions": [0, 1]}],
    }
    with pytest.raises(JavaError, match="GroupNotEmptyException"):
        admin("delete_group", group=group)
    with pytest.raises(JavaError, match="UnknownMemberIdException"):
        admin("alter_group_offsets", group=group, topic=topic, offsets={"0": 0})
    with pytest.raises(JavaError, match="GroupSubscribedToTopicException"):
        admin("delete_group_offsets", group=group, topic=topic, partition=0)
    member.stop()
    admin("remove_member", group=group, instance="desk")
    assert admin("describe_group", group=group)["state"] == "Empty"
    admin("delete_group", group=group)
    assert ledger.violations == []


REFUSALS: dict[str, dict[str, Any]] = {
    "InvalidReplicationFactorException": {"partitions": 1, "replicas": 3},
    "InvalidPartitionsException": {"partitions": 0},
    "InvalidConfigurationException": {"partitions": 1, "configs": {"no.such": "1"}},
    "InvalidTopicException": {"partitions": 1, "topic": "no spaces, please"},
}


@pytest.mark.parametrize("error", REFUSALS)
def test_a_bad_topic_is_refused_by_its_own_error(admin: Admin, name: str, error: str) -> None:
    with pytest.raises(JavaError, match=error):
        admin("create_topic", **{"topic": name, **REFUSALS[error]})


def test_what_does_not_fit_an_existing_topic_is_refused(
    admin: Admin, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    with pytest.raises(JavaError, match="TopicExistsException"):
        admin("create_topic", topic=topic, partitions=2)
    with pytest.raises(JavaError, match="InvalidPartitionsException"):
        admin("create_partitions", topic=topic, partitions=2)
    with pytest.raises(JavaError, match="OffsetOutOfRangeException"):
        admin("delete_records", topic=topic, before={"0": 5})
    change = ("APPEND", "retention.ms", "1")
    with pytest.raises(JavaError, match="InvalidConfigurationException"):
        admin("alter_configs", kind="TOPIC", name=topic, changes=[change])
