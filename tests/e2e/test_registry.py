"""Proves that confluent-kafka's serialisers work with the registry, on a real node."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import (
    MessageField,
    SerializationContext,
    SerializationError,
)
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from penstock.client.registered_values import avro_format, protobuf_format
from penstock.columns.values.refusals import DecodeRefused
from tests.e2e.commands import Shell
from tests.e2e.conftest import MakeBroker, MakeTopic
from tests.e2e.processes import Broker
from tests.waiting import wait_until

WAIT_S = 60.0
STRING = {"type": "string"}
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


def test_json_schema_goes_through_a_topic(
    broker: Broker, registry: SchemaRegistryClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    context = SerializationContext(topic, MessageField.VALUE)
    address = {"$id": "address.json", "type": "object", "properties": {"street": STRING}}
    registry.register_schema("address", Schema(json.dumps(address), "JSON"))
    user = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "User",
        "type": "object",
        "properties": {"name": STRING, "home": {"$ref": "address.json"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    schema = Schema(json.dumps(user), "JSON", [SchemaReference("address.json", "address", 1)])
    writer = JSONSerializer(schema, registry, lambda value, _: value)
    ada = {"name": "Ada", "home": {"street": "Long Lane"}}
    encoded = writer(ada, context)
    reader = JSONDeserializer(
        schema, schema_registry_client=SchemaRegistryClient({"url": url(broker)})
    )
    assert reader(encoded, context) == ada
    with pytest.raises(SerializationError):
        writer({"home": {"street": 3}}, context)
    assert registry.get_schema_types() == ["JSON", "PROTOBUF", "AVRO"]


def test_protobuf_goes_through_a_topic(
    broker: Broker, registry: SchemaRegistryClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    context = SerializationContext(topic, MessageField.VALUE)
    message_type = made_message("Reading")
    writer = ProtobufSerializer(message_type, registry, {"use.deprecated.format": False})
    message = message_type(sensor="s1", celsius=21.5)
    message.at.seconds = 12
    encoded = writer(message, context)
    other = SchemaRegistryClient({"url": url(broker)})
    reader = ProtobufDeserializer(message_type, {"use.deprecated.format": False}, other)
    assert reader(encoded, context) == message
    # It came as a descriptor, and is shown as text; the same text is the same schema.
    found = other.get_latest_version(f"{topic}-value")
    assert "optional double celsius = 2;" in found.schema.schema_str
    again = other.register_schema(f"{topic}-value", Schema(found.schema.schema_str, "PROTOBUF"))
    assert again == found.schema_id
    serialized = other.get_schema(found.schema_id, fmt="serialized").schema_str
    kept = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized))
    assert [each.name for each in kept.message_type] == ["Reading"]


def made_message(name: str) -> Any:
    """A class as protoc generates it, without protoc."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"tests/{name}.proto", package="tests", syntax="proto3"
    )
    file.dependency.append("google/protobuf/timestamp.proto")
    made = file.message_type.add(name=name)
    made.field.add(name="sensor", number=1, label=1, type=9)
    made.field.add(name="celsius", number=2, label=1, type=1, proto3_optional=True, oneof_index=0)
    made.field.add(name="at", number=3, label=1, type=11, type_name=".google.protobuf.Timestamp")
    made.oneof_decl.add(name="_celsius")
    timestamp_pb2.Timestamp()
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tests.{name}"))


def test_all_that_clients_ask_for_is_answered(
    client: httpx.Client, registry: SchemaRegistryClient
) -> None:
    """The other methods of confluent-kafka's client, and what they get refused."""
    subject = "everything/with a slash-value"
    # No other test registers it, so its id is of this subject alone.
    own = ORDER | {"name": "OnlyHere"}
    schema = Schema(json.dumps(own), "AVRO")
    registered = registry.register_schema_full_response(subject, schema)
    found = registry.lookup_schema(subject, schema)
    assert (found.schema_id, found.version) == (registered.schema_id, 1)
    by_guid = registry.get_schema_by_guid(registered.guid)
    assert json.loads(by_guid.schema_str) == own
    assert registry.get_subjects_by_schema_id(found.schema_id) == [subject]
    (place,) = registry.get_schema_versions(found.schema_id)
    assert (place.subject, place.version) == (subject, 1)
    assert subject in registry.get_subjects()
    assert registry.get_contexts() == ["."]
    assert registry.get_referenced_by(subject, 1) == []
    tagged = Schema(
        json.dumps(WITH_COUNT | {"name": "OnlyHere"}),
        "AVRO",
        metadata=Metadata(None, MetadataProperties({"owner": "shop"}), None),
    )
    registry.register_schema(subject, tagged)
    latest = registry.get_latest_with_metadata(subject, {"owner": "shop"})
    assert latest.version == 2
    assert registry.test_compatibility(subject, schema)
    assert registry.test_compatibility_all_versions(subject, schema)
    assert registry.set_compatibility(subject, "FULL") == {"compatibility": "FULL"}
    assert registry.get_compatibility(subject) == "FULL"
    assert registry.get_config().compatibility_level == "BACKWARD"
    registry.delete_config(subject)
    assert registry.get_global_mode() == "READWRITE"
    assert registry.update_mode(subject, "READONLY") == "READONLY"
    with pytest.raises(SchemaRegistryError) as refused:
        registry.delete_subject(subject)
    assert refused.value.error_code == 42205
    assert registry.delete_mode(subject) == "READONLY"
    assert registry.delete_version(subject, 1) == 1
    assert registry.delete_subject(subject, permanent=False) == [2]
    assert registry.delete_subject(subject, permanent=True) == [1, 2]
    with pytest.raises(SchemaRegistryError) as refused:
        registry.get_associations_by_resource_name("topic", "-")
    assert (refused.value.http_status_code, refused.value.error_code) == (404, 404)


def test_bad_requests_get_this_apis_errors(client: httpx.Client) -> None:
    def refused(method: str, path: str, **options: Any) -> tuple[int, int]:
        answer = client.request(method, path, **options)
        assert answer.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
        assert answer.json()["message"]
        return answer.status_code, answer.json()["error_code"]

    path = "/subjects/bad-value/versions"
    assert refused("GET", "/schemas/ids/999999") == (404, 40403)
    assert refused("GET", "/schemas/ids/many") == (404, 40403)
    assert refused("GET", "/subjects/nobody/versions") == (404, 40401)
    assert refused("POST", path, json={"schema": "{"}) == (422, 42201)
    assert refused("POST", path, json={"schema": 3}) == (422, 422)
    assert refused("POST", path, json={}) == (422, 42201)
    assert refused("POST", path, json={"schema": '"int"', "schemaType": "XML"}) == (422, 42201)
    assert refused("POST", path, data={"schema": "x"}) == (415, 415)
    assert refused("PUT", "/config", json={"compatibility": "SOME"}) == (422, 42203)
    assert refused("PUT", "/mode", json={"mode": "SOME"}) == (422, 42204)
    huge = json.dumps({"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(200_000)]})
    assert refused("POST", path, json={"schema": huge}) == (422, 42209)
    deep = '{"type":"array","items":' * 5_000 + '"int"' + "}" * 5_000
    assert refused("POST", path, json={"schema": deep}) == (422, 42201)
    nested = 'syntax = "proto3"; ' + "message M {" * 900 + "}" * 900
    body = {"schema": nested, "schemaType": "PROTOBUF"}
    assert refused("POST", path, json=body) == (422, 42201)
    # A page of another origin may write nothing here either.
    foreign = {"origin": "http://elsewhere.example"}
    assert client.post(path, json={"schema": '"int"'}, headers=foreign).status_code == 403
    assert "bad-value" not in client.get("/subjects").json()


def test_all_is_there_after_a_restart(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    for number in range(3):
        fields = [{"name": f"f{each}", "type": "int", "default": 0} for each in range(number)]
        schema = json.dumps({"type": "record", "name": "R", "fields": fields})
        answer = httpx.post(
            f"{url(broker)}/subjects/kept/versions", json={"schema": schema}, timeout=WAIT_S
        )
        assert answer.json()["version"] == number + 1
    shown = httpx.get(f"{url(broker)}/schemas", timeout=WAIT_S).json()
    broker.kill()
    broker.start()
    assert httpx.get(f"{url(broker)}/schemas", timeout=WAIT_S).json() == shown
    assert len(shown) == 3


def test_values_of_many_versions_are_read_as_one(
    broker: Broker, registry: SchemaRegistryClient, make_topic: MakeTopic
) -> None:
    """By the decoder that Spark's `decode` and `penstock sql` use, and by `penstock sql` itself."""
    topic = make_topic()
    context = SerializationContext(topic, MessageField.VALUE)
    old = AvroSerializer(registry, json.dumps(ORDER))
    new = AvroSerializer(registry, json.dumps(WITH_COUNT))
    values = [
        old({"id": 1, "item": "pen"}, context),
        new({"id": 2, "item": "ink", "count": 7}, context),
        None,
        b"\0\0\1\xff\xff" + b"unknown id",
        old({"id": 3, "item": "cap"}, context) + b"!",
        b"\1none",
    ]
    wanted = avro_format(url(broker), f"{topic}-value", None)
    found = wanted.open().decode(pa.array(values, pa.binary()))
    assert found.values.to_pylist() == [
        {"id": 1, "item": "pen", "count": 1},
        {"id": 2, "item": "ink", "count": 7},
        *[None] * 4,
    ]
    assert found.errors.to_pylist() == [
        None,
        None,
        None,
        "The registry has no schema with the id 131071.",
        "After the Avro value 1 bytes are left.",
        "The header of the Avro value does not start with a zero byte.",
    ]
    older = avro_format(url(broker), None, json.dumps(ORDER)).open()
    assert older.decode(pa.array(values[:2])).values.to_pylist() == [
        {"id": 1, "item": "pen"},
        {"id": 2, "item": "ink"},
    ]
    with pytest.raises(DecodeRefused, match="not found"):
        avro_format(url(broker), "nobody", None)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values[:2]:
        producer.produce(topic, value)
    producer.flush(WAIT_S)
    shown = Shell(broker.bootstrap).run(
        "sql",
        f'SELECT value.id, value.count FROM "{topic}" ORDER BY 1',
        "--values=avro",
        f"--registry={url(broker)}",
        "--json",
    )
    assert [json.loads(line) for line in shown.splitlines()] == [
        {"id": 1, "count": 1},
        {"id": 2, "count": 7},
    ]


def test_protobuf_values_are_read_by_the_registry(
    broker: Broker, registry: SchemaRegistryClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    message_type = made_message("Measured")
    writer = ProtobufSerializer(message_type, registry, {"use.deprecated.format": False})
    value = writer(message_type(sensor="s1"), SerializationContext(topic, MessageField.VALUE))
    wanted = protobuf_format(url(broker), f"{topic}-value", None)
    (found,) = wanted.open().decode(pa.array([value])).values.to_pylist()
    assert (found["sensor"], found["celsius"]) == ("s1", None)


def test_the_command_line(broker: Broker, tmp_path: Path) -> None:
    shell = Shell(broker.bootstrap)

    def schema(*arguments: str, expect: int = 0) -> Any:
        outcome = shell.attempt("schema", *arguments, f"--registry={url(broker)}")
        assert outcome.returncode == expect, outcome
        return outcome

    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "count.avsc").write_text(json.dumps(WITH_COUNT))
    (tmp_path / "price.avsc").write_text(json.dumps(WITHOUT_DEFAULT))
    made = schema("register", "cli-value", str(tmp_path / "order.avsc")).stdout
    assert "cli-value has the schema as version 1, with the id " in made
    assert "(BACKWARD)" in schema("check", "cli-value", str(tmp_path / "count.avsc")).stdout
    refused = schema("check", "cli-value", str(tmp_path / "price.avsc"), expect=1)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.stdout
    assert refused.stderr == "penstock: The schema does not fit cli-value (BACKWARD).\n"
    refused = schema("register", "cli-value", str(tmp_path / "price.avsc"), expect=1)
    assert "incompatible with an earlier schema" in refused.stderr
    schema("register", "cli-value", str(tmp_path / "count.avsc"))
    assert json.loads(schema("show", "cli-value", "--version=1").stdout) == ORDER
    rows = json.loads(schema("list", "--all", "--json").stdout)
    assert [row["version"] for row in rows if row["subject"] == "cli-value"] == [1, 2]
    assert "cli-value" in schema("list").stdout
    assert "version 1, 2" in schema("delete", "cli-value").stdout
    assert "for good" in schema("delete", "cli-value", "--permanent").stdout
    assert "not found" in schema("show", "cli-value", expect=1).stderr
    (tmp_path / "noname").write_text("x")
    assert "add --type" in schema("register", "x", str(tmp_path / "noname"), expect=2).stderr
    unknown = schema("show", "2147483647", expect=1)
    assert unknown.stderr == "penstock: Schema 2147483647 not found\n"
    order = str(tmp_path / "order.avsc")
    missing = schema("register", "x", order, "--reference=A=nothing:1", expect=1)
    assert "No schema reference found for subject 'nothing' and version 1" in missing.stderr
    # A cycle can't be registered. Another program may have written one.
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, (own, other) in enumerate((("cycle-a", "cycle-b"), ("cycle-b", "cycle-a"))):
        place = {"subject": own, "version": 1}
        reference = {"name": other, "subject": other, "version": 1}
        value = {**place, "id": 900_001 + number, "schema": '"int"', "references": [reference]}
        key = {"keytype": "SCHEMA", **place, "magic": 1}
        producer.produce("_schemas", json.dumps(value), json.dumps(key))
    assert producer.flush(WAIT_S) == 0
    for command in ("register", "check"):
        cycle = schema(command, "cli-cycle", order, "--reference=A=cycle-a:1", expect=1)
        assert "version 1 of subject 'cycle-a' refers to itself" in cycle.stderr
