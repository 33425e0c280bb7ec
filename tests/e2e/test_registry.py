"""Proves that confluent-kafka's serialisers work with the registry, on a real node."""

import json
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.waiting import wait_until

WAIT_S = 60.0
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}
WITH_COUNT = ORDER | {
    "fields": [*ORDER["fields"], {"name": "count", "type": "int", "default": 1}]  # type: ignore[misc]
}
WITHOUT_DEFAULT = ORDER | {
    "fields": [*ORDER["fields"], {"name": "price", "type": "int"}]  # type: ignore[misc]
}


def url(broker: Broker) -> str:
    return f"http://{broker.http}"


@pytest.fixture
def client(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url(broker), timeout=WAIT_S) as made:
        yield made


@pytest.fixture
def registry(broker: Broker) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url(broker)})


def consumed(broker: Broker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []

    def is_done() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value())
        return len(values) == count

    try:
        wait_until(f"{count} messages", is_done)
    finally:
        consumer.close()
    return values


def test_avro_goes_through_a_topic_and_evolves(
    broker: Broker, registry: SchemaRegistryClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    context = SerializationContext(topic, MessageField.VALUE)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    old = AvroSerializer(registry, json.dumps(ORDER))
    new = AvroSerializer(registry, json.dumps(WITH_COUNT))
    producer.produce(topic, old({"id": 1, "item": "pen"}, context))
    producer.produce(topic, new({"id": 2, "item": "ink", "count": 7}, context))
    producer.flush(WAIT_S)
    # Another client, which knows nothing yet, and reads all by the newer schema.
    reader = AvroDeserializer(SchemaRegistryClient({"url": url(broker)}), json.dumps(WITH_COUNT))
    found = [reader(value, context) for value in consumed(broker, topic, 2)]
    assert found == [
        {"id": 1, "item": "pen", "count": 1},
        {"id": 2, "item": "ink", "count": 7},
    ]
    with pytest.raises(SchemaRegistryError) as refused:
        registry.register_schema(f"{topic}-value", Schema(json.dumps(WITHOUT_DEFAULT), "AVRO"))
    assert refused.value.http_status_code == 409
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in str(refused.value)
    assert registry.get_versions(f"{topic}-value") == [1, 2]
