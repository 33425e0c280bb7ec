"""Proves that requests captured from real clients decode and encode to the same bytes.

frames.json holds what librdkafka 2.16, aiokafka 0.14 and kafka-python 3.0 sent to a listener, one
frame per API and version, without the leading size.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.catalogue import EXCHANGES
from penstock.protocol.kafka.codec import decode, encode
from penstock.protocol.kafka.headers import decode_request_header, encode_request_header

FRAMES: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "frames.json").read_text())
CAPTURED = [(client, request) for client, requests in FRAMES.items() for request in requests]


def parsed(client: str, request: str) -> Any:
    frame = bytes.fromhex(FRAMES[client][request])
    header, position = decode_request_header(memoryview(frame))
    request_class = EXCHANGES[ApiKey(header.api_key)].request
    return decode(request_class, header.api_version, frame, position)


@pytest.mark.parametrize(("client", "request_name"), CAPTURED)
def test_frame_round_trips(client: str, request_name: str) -> None:
    frame = bytes.fromhex(FRAMES[client][request_name])
    api, version = request_name.split()
    header, position = decode_request_header(memoryview(frame))
    assert header.api_key == ApiKey[api]
    assert header.api_version == int(version)
    request_class = EXCHANGES[ApiKey(header.api_key)].request
    message = decode(request_class, header.api_version, frame, position)
    assert encode_request_header(*header) + encode(message, header.api_version) == frame


def test_librdkafka_names_itself() -> None:
    request = parsed("librdkafka", "API_VERSIONS 3")
    assert request.client_software_name == "confluent-kafka-python"


def test_librdkafka_produces_one_batch() -> None:
    request = parsed("librdkafka", "PRODUCE 10")
    assert (request.transactional_id, request.acks) == (None, -1)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index) == ("captured", 0)
    assert type(partition.records) is memoryview
    # Byte 16 of a batch is its magic.
    assert partition.records[16] == 2


def test_librdkafka_fetches_by_topic_id() -> None:
    request = parsed("librdkafka", "FETCH 16")
    (topic,) = request.topics
    assert topic.topic == ""
    assert str(topic.topic_id) == "12345678-1234-5678-9abc-123456789abc"
    assert topic.partitions[0].fetch_offset == 0


def test_aiokafka_fetches_by_name() -> None:
    request = parsed("aiokafka", "FETCH 11")
    assert [topic.topic for topic in request.topics] == ["captured"]


def test_aiokafka_joins_a_group() -> None:
    request = parsed("aiokafka", "JOIN_GROUP 5")
    assert (request.group_id, request.protocol_type) == ("g", "consumer")
    assert request.protocols[0].name == "roundrobin"


def test_kafka_python_commits_with_metadata() -> None:
    request = parsed("kafka-python", "OFFSET_COMMIT 8")
    assert request.topics[0].partitions[0].committed_metadata == "m"
