"""Proves that operators can manage topics, settings, records and groups with confluent-kafka."""

import uuid

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.e2e.clients import Message
from tests.e2e.clients.everyone import BY_NAME
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker

TIMEOUT_S = 60.0


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def error_of(future: object) -> int:
    with pytest.raises(KafkaException) as caught:
        future.result(timeout=TIMEOUT_S)  # type: ignore[attr-defined]
    return int(caught.value.args[0].code())


def settings_of(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return found


def test_a_topic_lives_from_creation_to_deletion(admin: AdminClient) -> None:
    name = f"life-{uuid.uuid4().hex}"
    new = NewTopic(name, num_partitions=3, config={"retention.ms": "60000"})
    admin.create_topics([new])[name].result(TIMEOUT_S)
    assert error_of(admin.create_topics([new])[name]) == KafkaError.TOPIC_ALREADY_EXISTS

    described = admin.describe_topics(TopicCollection([name]))[name].result(TIMEOUT_S)
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    assert all(partition.leader.id == 0 for partition in described.partitions)
    assert all([node.id for node in p.isr] == [0] for p in described.partitions)
    assert not described.is_internal

    admin.create_partitions([NewPartitions(name, 5)])[name].result(TIMEOUT_S)
    assert len(admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions) == 5
    fewer = admin.create_partitions([NewPartitions(name, 2)])[name]
    assert error_of(fewer) == KafkaError.INVALID_PARTITIONS

    admin.delete_topics([name])[name].result(TIMEOUT_S)
    assert name not in admin.list_topics(timeout=TIMEOUT_S).topics
    assert error_of(admin.delete_topics([name])[name]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_of_the_same_name_starts_empty(
    admin: AdminClient, broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    BY_NAME["confluent-kafka"].produce(broker.bootstrap, topic, [Message(value=b"old")] * 5)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(TIMEOUT_S)
    BY_NAME["confluent-kafka"].produce(broker.bootstrap, topic, [Message(value=b"new")])
    found = BY_NAME["aiokafka"].consume(broker.bootstrap, topic, 1)
    assert [(message.value, message.offset) for message in found] == [(b"new", 0)]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("bad name", 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("too-many-copies", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("no-setting", 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("no-number", 1, config={"retention.ms": "x"}), KafkaError.INVALID_CONFIG),
    ],
    ids=["name", "replication factor", "unknown setting", "bad value"],
)
def test_a_bad_topic_is_refused_with_the_code_that_says_why(
    admin: AdminClient, topic: NewTopic, code: int
) -> None:
    assert error_of(admin.create_topics([topic])[topic.topic]) == code
    assert topic.topic not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_validate_only_changes_nothing(admin: AdminClient) -> None:
    name = f"dry-{uuid.uuid4().hex}"
    admin.create_topics([NewTopic(name, 1)], validate_only=True)[name].result(TIMEOUT_S)
    assert name not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_settings_show_their_defaults_and_sources(
    admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(retention_ms="1234")
    found = settings_of(admin, ResourceType.TOPIC, topic)
    assert found["retention.ms"].value == "1234"
    assert ConfigSource(found["retention.ms"].source) == ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert found["cleanup.policy"].value == "delete"
    assert found["cleanup.policy"].is_default
    for name in ("segment.bytes", "max.message.bytes", "compression.type"):
        assert ConfigSource(found[name].source) == ConfigSource.DEFAULT_CONFIG
    # A new cluster of Kafka sets it for all brokers.
    in_sync = found["min.insync.replicas"]
    assert ConfigSource(in_sync.source) == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert found["penstock.flush.policy"].value == "before-ack"
    assert "num.partitions" in settings_of(admin, ResourceType.BROKER, "0")


def test_settings_change_one_by_one(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(retention_ms="1000", segment_bytes="1048576")

    def alter(name: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    alter("retention.ms", "2000", AlterConfigOpType.SET)
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    found = settings_of(admin, ResourceType.TOPIC, topic)
    assert found["retention.ms"].value == "2000"
    assert found["cleanup.policy"].value == "delete,compact"
    assert found["segment.bytes"].value == "1048576"

    alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    alter("retention.ms", None, AlterConfigOpType.DELETE)
    found = settings_of(admin, ResourceType.TOPIC, topic)
    assert found["cleanup.policy"].value == "compact"
    assert found["retention.ms"].is_default


def test_settings_replaced_as_a_whole(admin: AdminClient, make_topic: MakeTopic) -> None:
    """The old AlterConfigs: what it leaves out goes back to its default."""
    topic = make_topic(retention_ms="1000")
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.bytes": "2097152"})
    admin.alter_configs([resource])[resource].result(TIMEOUT_S)
    found = settings_of(admin, ResourceType.TOPIC, topic)
    assert found["segment.bytes"].value == "2097152"
    assert found["retention.ms"].is_default


def test_the_cluster_describes_itself(admin: AdminClient, broker: Broker) -> None:
    described = admin.describe_cluster().result(TIMEOUT_S)
    assert [(node.id, node.port) for node in described.nodes] == [(0, broker.port)]
    assert described.controller.id == 0
    assert described.cluster_id == admin.list_topics(timeout=TIMEOUT_S).cluster_id


def test_a_message_above_the_limit_is_refused(broker: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes="2000")
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        BY_NAME["confluent-kafka"].produce(broker.bootstrap, topic, [Message(value=b"x" * 3000)])
    BY_NAME["confluent-kafka"].produce(broker.bootstrap, topic, [Message(value=b"x" * 1000)])


def test_a_record_without_a_key_is_refused_on_a_compacted_topic(
    broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(cleanup_policy="compact")
    with pytest.raises(AssertionError, match="INVALID_RECORD"):
        BY_NAME["confluent-kafka"].produce(broker.bootstrap, topic, [Message(value=b"keyless")])
    BY_NAME["confluent-kafka"].produce(broker.bootstrap, topic, [Message(key=b"k", value=b"v")])


def test_a_group_lives_from_its_first_commit_to_its_deletion(
    admin: AdminClient, broker: Broker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=2)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    places = [TopicPartition(topic, 0, 5), TopicPartition(topic, 1, 6)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()

    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert group in [each.group_id for each in listed.valid]
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert (described.state.name, described.members) == ("EMPTY", [])

    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
    admin.alter_consumer_group_offsets([moved])[group].result(TIMEOUT_S)
    assert offsets_of(admin, group) == {0: 1, 1: 6}

    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert offsets_of(admin, group) == {}
    assert error_of(admin.delete_consumer_groups([group])[group]) == KafkaError.GROUP_ID_NOT_FOUND


def offsets_of(admin: AdminClient, group: str) -> dict[int, int]:
    request = ConsumerGroupTopicPartitions(group)
    answer = admin.list_consumer_group_offsets([request])[group].result(TIMEOUT_S)
    return {place.partition: place.offset for place in answer.topic_partitions}


def test_a_group_with_members_is_not_deleted(
    admin: AdminClient, broker: Broker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.2)
    assert error_of(admin.delete_consumer_groups([group])[group]) == KafkaError.NON_EMPTY_GROUP
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert described.state.name == "STABLE"
    assert described.members[0].assignment.topic_partitions == [TopicPartition(topic, 0)]
    consumer.close()


def test_a_transactional_producer_is_refused_for_good(broker: Broker) -> None:
    """Until transactions exist, the client must fail at once instead of trying forever."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(TIMEOUT_S)
    assert not caught.value.args[0].retriable()
    assert caught.value.args[0].code() != KafkaError._TIMED_OUT


def test_a_topic_is_created_when_a_client_asks_for_it(broker: Broker) -> None:
    name = f"auto-{uuid.uuid4().hex}"
    BY_NAME["kafka-python"].produce(broker.bootstrap, name, [Message(value=b"first")])
    found = BY_NAME["aiokafka"].consume(broker.bootstrap, name, 1)
    assert [message.value for message in found] == [b"first"]
