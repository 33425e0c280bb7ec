"""Proves on three nodes that a topic which validates schemas takes only records of its subject,
through every door, whoever leads it, and says what is wrong with the others."""

import base64
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
    record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.batch import build_batch
from penstock.records.compression import Codec
from penstock.records.record import Record
from penstock.testing import ProcessCluster
from tests.e2e.commands import Shell
from tests.e2e.grpc_client import Client, Generated
from tests.e2e.wire import PRODUCE_VERSION, connect, frame
from tests.waiting import wait_until

# One after the other: two clusters at once on two cores would measure each other.
pytestmark = [pytest.mark.xdist_group("cluster-clients"), pytest.mark.timeout(240)]

WAIT_S = 60.0
VALUES = "confluent.value.schema.validation"
KEYS = "confluent.key.schema.validation"
VALUE_SUBJECTS = "confluent.value.subject.name.strategy"
RECORD_NAMES = "io.confluent.kafka.serializers.subject.RecordNameStrategy"
UNKNOWN = b"\x00\x00\x0f\x42\x40 of nobody"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("validating"), nodes=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def registry(cluster: ProcessCluster) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": f"http://{cluster.nodes[1].http}"})


def validating(cluster: ProcessCluster, name: str, settings: Mapping[str, str]) -> str:
    """A topic whose name nobody has used, also not an earlier run of the same test."""
    return cluster.create_topic(f"{name}-{uuid.uuid4().hex[:8]}", settings=settings)


def schema_of(name: str, *fields: str) -> str:
    listed = [{"name": each, "type": "string", "default": ""} for each in fields]
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": listed})


def framed(schema_id: int) -> bytes:
    """A value that names a schema; nobody looks at what follows."""
    return b"\x00" + schema_id.to_bytes(4) + b"\x00"


class Writer:
    """A producer that says of each record what became of it."""

    def __init__(self, cluster: ProcessCluster, **settings: Any) -> None:
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap} | settings)
        self.errors: list[KafkaError | None] = []

    def send(self, topic: str, *values: bytes | None, **rest: Any) -> list[KafkaError | None]:
        """The error of each, when all are settled."""
        self.errors = []
        for value in values:
            self._producer.produce(
                topic, value, on_delivery=lambda error, _: self.errors.append(error), **rest
            )
        assert self._producer.flush(WAIT_S) == 0
        return self.errors


def codes(errors: list[KafkaError | None]) -> list[int | None]:
    return [None if error is None else error.code() for error in errors]


def wire_produce(cluster: ProcessCluster, topic: str, batch: bytes) -> Any:
    """The answer of the leader for partition 0, whoever that is by then."""
    data = PartitionProduceData(index=0, records=batch)
    topic_data = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topic_data)
    answers: list[Any] = []

    def is_answered() -> bool:
        with connect(cluster.leader(topic).bootstrap) as wire:
            wire.send(frame(ApiKey.PRODUCE, PRODUCE_VERSION, request))
            (answer,) = wire.receive(ApiKey.PRODUCE, PRODUCE_VERSION).responses
        answers.append(answer.partition_responses[0])
        return answers[-1].error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER

    wait_until("the leader answers", is_answered, timeout_s=WAIT_S)
    return answers[-1]


def records_of(cluster: ProcessCluster, topic: str) -> list[bytes | None]:
    """All values of partition 0."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"})
    place = TopicPartition(topic, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=WAIT_S)
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []

    def is_done() -> bool:
        if len(values) < end:
            values.extend(message.value() for message in consumer.consume(10_000, timeout=0.2))
        return len(values) >= end

    try:
        wait_until(f"{end} records", is_done, timeout_s=WAIT_S)
    finally:
        consumer.close()
    return values


def test_only_records_of_the_subject_are_taken(
    cluster: ProcessCluster, registry: SchemaRegistryClient
) -> None:
    topic = validating(cluster, "orders", {VALUES: "true"})
    own = AvroSerializer(registry, schema_of("Order", "item"))
    good = own({"item": "pen"}, SerializationContext(topic, MessageField.VALUE))
    foreign = registry.register_schema(f"{topic}-others", Schema(schema_of("Other", "a"), "AVRO"))
    writer = Writer(cluster, **{"linger.ms": 0})
    # The schema was registered a moment ago, and no broker has read it yet.
    assert codes(writer.send(topic, good)) == [None]
    # A record without a value is a deletion: it has no schema.
    assert codes(writer.send(topic, None, key=b"k")) == [None]
    for value, said in (
        (b"plain text", "no magic byte"),
        (b"", "no magic byte"),
        (UNKNOWN, "no schema with the id 1000000"),
        (framed(foreign), f"is not registered under {topic}-value"),
    ):
        (error,) = Writer(cluster).send(topic, value)
        assert error is not None
        assert error.code() == KafkaError.INVALID_RECORD, (error, said)
        answer = wire_produce(cluster, topic, build_batch([Record(value=value)]))
        assert said in answer.record_errors[0].batch_index_error_message
    assert records_of(cluster, topic) == [good, None]


def test_a_batch_is_refused_whole_and_names_its_bad_records(
    cluster: ProcessCluster, registry: SchemaRegistryClient
) -> None:
    topic = validating(cluster, "whole", {VALUES: "true"})
    schema_id = registry.register_schema(f"{topic}-value", Schema(schema_of("Whole", "a"), "AVRO"))
    rows = [framed(schema_id), b"raw", framed(schema_id), None, UNKNOWN]
    for codec in Codec:
        now_ms = time.time_ns() // 1_000_000
        records = [
            Record(offset=number, value=value, timestamp_ms=now_ms)
            for number, value in enumerate(rows * 2_000 if codec is Codec.ZSTD else rows)
        ]
        answer = wire_produce(cluster, topic, build_batch(records, codec=codec))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert answer.base_offset == -1
        # What names no schema is certain; more than a hundred are not listed.
        found = [each.batch_index for each in answer.record_errors]
        assert found == [index for index in range(len(records)) if index % 5 == 1][:100]
        assert answer.error_message.startswith("One or more records have been rejected: record 1:")
    assert records_of(cluster, topic) == []
    good = [framed(schema_id)] * 20_000
    many = [Record(offset=number, value=value) for number, value in enumerate(good)]
    assert wire_produce(cluster, topic, build_batch(many, codec=Codec.LZ4)).error_code == 0
    assert wire_produce(cluster, topic, build_batch(many)).error_code == 0
    assert len(records_of(cluster, topic)) == 40_000


def test_headers_keys_and_record_names_are_understood(
    cluster: ProcessCluster, registry: SchemaRegistryClient
) -> None:
    topic = validating(
        cluster, "named", {VALUES: "true", KEYS: "true", VALUE_SUBJECTS: RECORD_NAMES}
    )
    writer = Writer(cluster)
    key_id = registry.register_schema(f"{topic}-key", Schema('"string"', "AVRO"))
    key = framed(key_id)
    by_record = AvroSerializer(
        registry,
        schema_of("Named", "a"),
        conf={"subject.name.strategy": record_subject_name_strategy},
    )
    context = SerializationContext(topic, MessageField.VALUE)
    good = by_record({"a": "x"}, context)
    assert registry.get_versions("shop.Named") == [1]
    # The newer form: a GUID in a header, and nothing before the value.
    by_header = AvroSerializer(
        registry,
        schema_of("Named", "a"),
        conf={
            "subject.name.strategy": record_subject_name_strategy,
            "schema.id.serializer": header_schema_id_serializer,
        },
    )
    headers: list[Any] = []
    bare = by_header({"a": "x"}, SerializationContext(topic, MessageField.VALUE, headers))
    assert headers
    assert good.endswith(bare)
    assert codes(writer.send(topic, good, key=key)) == [None]
    assert codes(writer.send(topic, good)) == [None]
    assert codes(writer.send(topic, bare, key=key, headers=headers)) == [None]
    invalid = [KafkaError.INVALID_RECORD]
    assert codes(Writer(cluster).send(topic, bare, key=key)) == invalid
    wrong = [(headers[0][0], b"\x01" + bytes(16))]
    assert codes(Writer(cluster).send(topic, bare, key=key, headers=wrong)) == invalid
    assert codes(Writer(cluster).send(topic, good, key=b"raw")) == invalid
    assert codes(Writer(cluster).send(topic, framed(key_id), key=key)) == invalid
    assert len(records_of(cluster, topic)) == 3


def test_the_setting_is_listed_and_changed_by_every_tool(
    cluster: ProcessCluster, registry: SchemaRegistryClient
) -> None:
    topic = validating(cluster, "tools", {})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def shown() -> dict[str, str]:
        found = admin.describe_configs([resource])[resource].result(WAIT_S)
        return {name: entry.value for name, entry in found.items() if name.startswith("confluent.")}

    def alter(name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([changed])[changed].result(WAIT_S)

    assert shown() == {
        VALUES: "false",
        KEYS: "false",
        VALUE_SUBJECTS: "io.confluent.kafka.serializers.subject.TopicNameStrategy",
        "confluent.key.subject.name.strategy": (
            "io.confluent.kafka.serializers.subject.TopicNameStrategy"
        ),
    }
    raw, refused = [None], [KafkaError.INVALID_RECORD]
    assert codes(Writer(cluster).send(topic, b"raw")) == raw
    alter(VALUES, "true")
    assert shown()[VALUES] == "true"
    assert codes(Writer(cluster).send(topic, b"raw")) == refused
    with pytest.raises(KafkaException, match=r"TopicNameStrategy"):
        alter(VALUE_SUBJECTS, "com.example.OwnStrategy")
    with pytest.raises(KafkaException, match=r"takes records as they are"):
        alter("errors.deadletterqueue.group.enable", "true")
    Shell(cluster.bootstrap).run("topic", "alter", topic, "--set", f"{VALUES}=false")
    assert codes(Writer(cluster).send(topic, b"raw")) == raw
    url = f"http://{cluster.nodes[2].http}/v1/topics/{topic}/settings"
    httpx.patch(url, json={"settings": {VALUES: "true"}}, timeout=WAIT_S).raise_for_status()
    assert codes(Writer(cluster).send(topic, b"raw")) == refused


def test_other_doors_hear_the_same(
    cluster: ProcessCluster,
    registry: SchemaRegistryClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    topic = validating(cluster, "doors", {VALUES: "true"})
    schema_id = registry.register_schema(f"{topic}-value", Schema(schema_of("Door", "a"), "AVRO"))
    good = framed(schema_id)
    # Not the leader: it passes the batch on, and the refusal back.
    node = next(each for each in cluster.nodes.values() if each is not cluster.leader(topic))
    url = f"http://{node.http}/v1/topics/{topic}/records"

    def post(*values: bytes) -> httpx.Response:
        records = [
            {"value": base64.b64encode(value).decode(), "encoding": "base64"} for value in values
        ]
        return httpx.post(url, json={"records": records}, timeout=WAIT_S)

    assert post(good, good).status_code == 200
    answer = post(good, b"raw")
    assert answer.status_code == 400
    assert answer.json()["reason"] == "invalid_record"
    assert "record 1: the value does not name a schema" in answer.json()["detail"]
    assert "no schema with the id 1000000" in post(UNKNOWN).json()["detail"]
    generated = Generated(tmp_path_factory.mktemp("generated"))
    with Client(generated, node.grpc) as client:
        pb = client.messages
        client.streams.Publish(
            pb.PublishRequest(topic=topic, records=[pb.NewRecord(value=good)]), timeout=WAIT_S
        )
        with pytest.raises(grpc.RpcError) as refused:
            client.streams.Publish(
                pb.PublishRequest(topic=topic, records=[pb.NewRecord(value=b"raw")]), timeout=WAIT_S
            )
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "does not name a schema" in refused.value.details()
    assert records_of(cluster, topic) == [good, good, good]


def test_a_new_leader_knows_what_was_registered(
    cluster: ProcessCluster, registry: SchemaRegistryClient
) -> None:
    topic = validating(cluster, "moving", {VALUES: "true"})
    context = SerializationContext(topic, MessageField.VALUE)
    writer = Writer(cluster, **{"enable.idempotence": True})
    victim = cluster.leader(topic)
    # The registry is asked on a node that stays.
    stays = next(each for each in cluster.nodes.values() if each is not victim)
    asked = SchemaRegistryClient({"url": f"http://{stays.http}"})
    sent: list[bytes] = []
    for turn in range(40):
        if turn == 15:
            victim.kill()
        names = [f"f{number}" for number in range(turn // 4 + 1)]
        serializer = AvroSerializer(asked, schema_of("Moving", *names))
        sent.append(serializer(dict.fromkeys(names, str(turn)), context))
        assert codes(writer.send(topic, sent[-1])) == [None]
    assert codes(Writer(cluster).send(topic, b"raw")) == [KafkaError.INVALID_RECORD]
    victim.start()
    cluster.await_in_sync()
    assert records_of(cluster, topic) == sent


def test_a_registry_that_is_away_is_named_and_nothing_hangs(
    cluster: ProcessCluster, registry: SchemaRegistryClient
) -> None:
    """Last in this file: it begins a new registry, whose only copy is on the node that dies."""
    topic = validating(cluster, "away", {VALUES: "true"})
    away = next(each for each in cluster.nodes.values() if each is not cluster.leader(topic))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics(["_schemas"], operation_timeout=30)["_schemas"].result(WAIT_S)
    alone = NewTopic("_schemas", 1, replica_assignment=[[away.number]])
    admin.create_topics([alone], operation_timeout=30)["_schemas"].result(WAIT_S)
    schema_id = registry.register_schema(f"{topic}-value", Schema(schema_of("Away", "a"), "AVRO"))
    known, unknown = (build_batch([Record(value=framed(each))]) for each in (schema_id, 999))
    assert wire_produce(cluster, topic, known).error_code == 0
    away.kill()
    wait_until("a leader", lambda: cluster.leader(topic) is not away, timeout_s=WAIT_S)
    begun_at = time.monotonic()
    answer = wire_produce(cluster, topic, unknown)
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert "the schemas of _schemas can't be read now" in answer.error_message
    assert time.monotonic() - begun_at < WAIT_S / 2
    # What is known needs nobody.
    assert wire_produce(cluster, topic, known).error_code == 0
    away.start()
    cluster.await_in_sync()
    assert wire_produce(cluster, topic, unknown).error_code == ErrorCode.INVALID_RECORD
    assert len(records_of(cluster, topic)) == 2
