"""Proves that the admin sides of kafka-python, aiokafka, kafkajs and kcat work too."""

import asyncio
import json
import uuid

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError
from kafka import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import GroupSubscribedToTopicError, NoError

from tests.e2e.clients import Message
from tests.e2e.clients.confluent import Confluent
from tests.e2e.clients.everyone import BY_NAME
from tests.e2e.clients.kafkajs import call
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker, run_tool


@pytest.fixture
def name() -> str:
    return f"admin-{uuid.uuid4().hex[:8]}"


def fill(broker: Broker, topic: str, count: int) -> None:
    messages = [Message(value=str(number).encode()) for number in range(count)]
    BY_NAME["confluent-kafka"].produce(broker.bootstrap, topic, messages)


def test_kafka_python_manages_topics(broker: Broker, name: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics(
        {name: {"num_partitions": 2, "configs": {"retention.ms": "5000"}}}, wait_for_metadata=True
    )
    admin.create_partitions({name: 3})
    described = admin.describe_topics([name])[0]
    assert [partition["partition_index"] for partition in described["partitions"]] == [0, 1, 2]
    by_id = admin.describe_topics([uuid.UUID(str(described["topic_id"]))])[0]
    assert by_id["name"] == name
    page = admin.describe_topic_partitions([name], response_partition_limit=2)
    assert len(page["topics"][0]["partitions"]) == 2
    assert page["next_cursor"] == {"topic_name": name, "partition_index": 2}

    change = {"retention.ms": "6000", "cleanup.policy": ("APPEND", "compact")}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, change)])
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    found = admin.describe_configs([resource])["topic"][name]
    assert found["retention.ms"]["value"] == "6000"
    assert found["cleanup.policy"]["value"] == "delete,compact"
    every = admin.describe_configs([resource], config_filter="all")["topic"][name]
    assert len(every) > len(found) + 10

    admin.delete_topics([name])
    assert name not in admin.list_topics()
    admin.close()


def test_kafka_python_manages_records_and_offsets(
    broker: Broker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    fill(broker, topic, 10)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    place = TopicPartition(topic, 0)
    assert admin.delete_records({place: 4})[place]["low_watermark"] == 4
    offsets = {place: OffsetAndMetadata(7, "note", -1)}
    assert admin.alter_group_offsets(group, offsets) == {place: NoError}
    committed = admin.list_group_offsets([group])[group]
    assert (committed[place].offset, committed[place].metadata) == (7, "note")
    assert group in [each["group_id"] for each in admin.list_groups()]
    assert admin.delete_group_offsets(group, [place]) == {place: NoError}
    assert admin.list_group_offsets([group])[group] == {}
    admin.close()


def test_kafka_python_sees_groups_log_directories_and_the_cluster(
    broker: Broker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    fill(broker, topic, 3)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, group_id=group, auto_offset_reset="earliest"
    )
    while not consumer.poll(timeout_ms=500):
        pass
    consumer.commit()
    described = admin.describe_groups([group])[group]
    assert described["group_state"] == "Stable"
    assert len(described["members"]) == 1
    refused = admin.delete_group_offsets(group, [TopicPartition(topic, 0)])
    assert refused == {TopicPartition(topic, 0): GroupSubscribedToTopicError}
    consumer.close()
    assert admin.delete_groups([group]) == {group: "OK"}

    cluster = admin.describe_cluster()
    assert cluster["controller_id"] == 0
    directories = admin.describe_log_dirs()
    assert topic in json.dumps(directories, default=str)
    admin.close()


def test_kafka_python_sees_producers(broker: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    settings = {"enable.idempotence": True}
    Confluent().produce(broker.bootstrap, topic, [Message(value=b"x")] * 3, **settings)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    place = TopicPartition(topic, 0)
    producers = admin.describe_producers([place])[place].active_producers
    assert [producer.last_sequence for producer in producers] == [2]
    admin.close()


def test_aiokafka_manages_topics_and_records(broker: Broker, name: str) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            new = AioNewTopic(name, 2, 1, topic_configs={"retention.ms": "5000"})
            await admin.create_topics([new])
            with pytest.raises(TopicAlreadyExistsError):
                await created_again(admin, new)
            await admin.create_partitions({name: AioNewPartitions(4)})
            described = (await admin.describe_topics([name]))[0]
            assert len(described["partitions"]) == 4
            await change_and_check_settings(admin, name)
            fill(broker, name, 6)
            place = AioPartition(name, 0)
            assert await admin.delete_records({place: RecordsToDelete(2)}) == {place: 2}
            await admin.delete_topics([name])
            assert name not in await admin.list_topics()
            assert (await admin.describe_cluster())["controller_id"] == 0
        finally:
            await admin.close()

    asyncio.run(scenario())


async def created_again(admin: AIOKafkaAdminClient, new: AioNewTopic) -> None:
    """aiokafka returns the error code in the response, as an operator's script would read it."""
    response = await admin.create_topics([new])
    if response.topic_errors[0][1] == TopicAlreadyExistsError.errno:
        raise TopicAlreadyExistsError


async def change_and_check_settings(admin: AIOKafkaAdminClient, name: str) -> None:
    wanted = {"retention.ms": "7000"}
    await admin.alter_configs([AioConfigResource(AioConfigResourceType.TOPIC, name, wanted)])
    resource = AioConfigResource(AioConfigResourceType.TOPIC, name, wanted)
    response = (await admin.describe_configs([resource]))[0]
    entries = response.resources[0][4]
    assert [(entry[0], entry[1]) for entry in entries] == [("retention.ms", "7000")]


def test_aiokafka_sees_groups_and_their_offsets(
    broker: Broker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    fill(broker, topic, 3)

    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await admin.start()
        await consumer.start()
        try:
            for _ in range(3):
                await consumer.getone()
            await consumer.commit()
            offsets = await admin.list_consumer_group_offsets(group)
            assert {place.topic: held.offset for place, held in offsets.items()} == {topic: 3}
            assert group in [listed[0] for listed in await admin.list_consumer_groups()]
            response = (await admin.describe_consumer_groups([group]))[0]
            assert response.groups[0][2] == "Stable"
        finally:
            await consumer.stop()
            await admin.close()

    asyncio.run(scenario())


def test_kafkajs_manages_everything_it_can(broker: Broker, name: str, group: str) -> None:
    result = call(broker.bootstrap, "admin", topic=name, group=group)
    assert result["created"] is True
    assert result["createdAgain"] is False
    assert len(result["metadata"]["topics"][0]["partitions"]) == 4
    assert [node["nodeId"] for node in result["cluster"]["brokers"]] == [0]
    assert [entry["configValue"] for entry in result["configs"]] == ["120000"]
    committed = {
        each["partition"]: each["offset"] for each in result["groupOffsets"][0]["partitions"]
    }
    assert committed[0] == "3"
    assert group in [each["groupId"] for each in result["groups"]]
    assert result["describedGroups"][0]["state"] == "Empty"
    assert result["deletedGroups"][0]["errorCode"] == 0
    watermarks = {each["partition"]: each for each in result["topicOffsets"]}
    assert (watermarks[0]["low"], watermarks[0]["high"]) == ("2", "5")
    assert {each["partition"]: each["offset"] for each in result["byTime"]}[0] == "2"
    assert name not in result["topics"]


def test_kcat_lists_the_cluster(broker: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    listing = json.loads(run_tool(["kcat", "-b", broker.bootstrap, "-L", "-J", "-t", topic]))
    assert listing["brokers"] == [{"id": 0, "name": broker.bootstrap}]
    assert listing["controllerid"] == 0
    partitions = listing["topics"][0]["partitions"]
    assert [(each["partition"], each["leader"]) for each in partitions] == [(0, 0), (1, 0), (2, 0)]
