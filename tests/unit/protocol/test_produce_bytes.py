"""A recalled produce request is what decoding would have given, or nothing is recalled."""

import random
from uuid import UUID

import pytest

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import decode, encode
from penstock.protocol.kafka.headers import decode_request_header, encode_request_header
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.protocol.kafka.produce_bytes import PARTITIONS_KEPT_MAX, ProduceForm

VERSIONS = range(14)
TOPIC_ID = UUID(int=7)


def request_of(
    index: int, records: bytes | None, *, topic: str = "t", acks: int = -1
) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=records)
    topics = [TopicProduceData(name=topic, topic_id=TOPIC_ID, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def frame_of(
    request: ProduceRequest, version: int, number: int, client: str | None = "me"
) -> memoryview:
    header = encode_request_header(ApiKey.PRODUCE, version, number, client)
    return memoryview(bytearray(header + encode(request, version)))


def decoded(frame: memoryview, version: int) -> ProduceRequest:
    _, position = decode_request_header(frame)
    return decode(ProduceRequest, version, frame, position)


def form_of(frame: memoryview, version: int) -> ProduceForm | None:
    header, position = decode_request_header(frame)
    request = decode(ProduceRequest, version, frame, position)
    return ProduceForm.of(request, version, frame, position, header.client_id)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_of_a_form_are_recalled(version: int) -> None:
    form = form_of(frame_of(request_of(3, b"first"), version, 1), version)
    assert form is not None
    assert form.client_id == "me"
    for number, size in enumerate([0, 1, 100, 126, 127, 128, 16_382, 16_383, 300_000]):
        frame = frame_of(request_of(number, bytes(size)), version, number)
        assert form.recall(frame) == decoded(frame, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_others_are_not(version: int) -> None:
    form = form_of(frame_of(request_of(3, b"first"), version, 1), version)
    assert form is not None
    two = request_of(1, b"x")
    two.topic_data[0].partition_data.append(PartitionProduceData(index=2, records=b"y"))
    others = [
        frame_of(request_of(3, b"x", acks=1), version, 1),
        frame_of(request_of(3, b"x"), version, 1, "another"),
        frame_of(request_of(3, b"x"), version, 1, None),
        frame_of(request_of(3, None), version, 1),
        frame_of(two, version, 1),
    ]
    if version < 13:
        others.append(frame_of(request_of(3, b"x", topic="another"), version, 1))
    for frame in others:
        assert form.recall(frame) is None
    assert form_of(others[3], version) is None
    assert form_of(others[4], version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_mutated_frames_are_recalled_as_they_are_decoded_or_not_at_all(version: int) -> None:
    chance = random.Random(version)
    valid = frame_of(request_of(3, b"records"), version, 1)
    form = form_of(valid, version)
    assert form is not None
    recalled = 0
    for _ in range(3_000):
        frame = bytearray(valid)
        for _ in range(chance.randint(1, 2)):
            frame[chance.randrange(4, len(frame))] = chance.choice([0, 1, 2, 7, 8, 128, 255])
        frame = frame[: chance.choice([len(frame), chance.randrange(10, len(frame))])]
        frame += bytes(chance.choice([0, 0, 1, 3]))
        found = form.recall(memoryview(frame))
        if found is not None:
            recalled += 1
            assert found == decoded(memoryview(frame), version)
    assert recalled > 100


def test_a_request_with_fields_that_we_do_not_know_is_no_form() -> None:
    frame = frame_of(request_of(3, b"records"), 9, 1)
    assert frame[-1] == 0
    unknown = memoryview(bytearray(bytes(frame[:-1]) + b"\x01\x05\x02ab"))
    assert decoded(unknown, 9) == decoded(frame, 9)
    assert form_of(unknown, 9) is None
    form = form_of(frame, 9)
    assert form is not None
    assert form.recall(unknown) is None


def test_a_request_that_waits_still_names_its_partition() -> None:
    form = form_of(frame_of(request_of(0, b"x"), 9, 1), 9)
    assert form is not None
    waiting = [form.recall(frame_of(request_of(index, b"x"), 9, 1)) for index in range(200)]
    assert len(waiting) > PARTITIONS_KEPT_MAX
    named = [one.topic_data[0].partition_data[0].index for one in waiting if one is not None]
    assert named == list(range(200))


def test_a_form_keeps_no_memory_that_was_received_into() -> None:
    """A buffer that somebody looks at can't be resized."""
    received = bytearray(frame_of(request_of(0, b"x"), 9, 1))
    form = form_of(memoryview(received), 9)
    received.append(0)
    received.pop()
    assert form is not None
    assert form.recall(memoryview(received)) is not None
    form.last.records = None
    received.append(0)
