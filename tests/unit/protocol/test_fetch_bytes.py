"""Proves that fetches as bytes say what they would say as messages."""

from copy import deepcopy
from itertools import groupby
from random import Random
from typing import NamedTuple
from uuid import UUID

import pytest

from penstock.model.file_ranges import FileRange
from penstock.protocol.kafka.codec import decode, encode
from penstock.protocol.kafka.fetch_bytes import FetchBytes, FetchReply, encode_fetch_response
from penstock.protocol.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

CONTENT = b"0123456789" * 20


class FileInMemory:
    def __init__(self) -> None:
        self.pins = 0

    def fileno(self) -> int:
        return -1

    def pread(self, length: int, position: int) -> bytes:
        return CONTENT[position : position + length]

    def pin(self) -> None:
        self.pins += 1

    def unpin(self) -> None:
        self.pins -= 1


def response_with(*records: bytes | FileRange | None) -> FetchResponse:
    partitions = [
        PartitionData(
            partition_index=index,
            high_watermark=10,
            current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=2) if index else None,
            aborted_transactions=None,
            records=value,
        )
        for index, value in enumerate(records)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def joined(parts: list[bytes | FileRange]) -> bytes:
    return b"".join(part.read() if isinstance(part, FileRange) else part for part in parts)


@pytest.mark.parametrize("version", range(19))
def test_file_ranges_stand_where_their_bytes_would(version: int) -> None:
    file = FileInMemory()
    ranges = (FileRange(file, 3, 5), FileRange(file, 0, 150))
    response = response_with(ranges[0], b"in memory", None, ranges[1], b"")
    parts = encode_fetch_response(response, version)
    in_memory = response_with(CONTENT[3:8], b"in memory", None, CONTENT[:150], b"")
    assert joined(parts) == encode(in_memory, version)
    assert [part for part in parts if isinstance(part, FileRange)] == list(ranges)
    assert file.pins == 2


def test_a_response_without_file_ranges_is_one_part() -> None:
    (part,) = encode_fetch_response(response_with(b"x", None), 12)
    assert isinstance(part, bytes)
    decoded = decode(FetchResponse, 12, part)
    assert [p.records for p in decoded.responses[0].partitions] == [b"x", None]


def test_views_of_memory_are_joined_too() -> None:
    response = response_with(None)
    response.responses[0].partitions[0].records = memoryview(bytearray(b"xy"))
    (part,) = encode_fetch_response(response, 11)
    assert isinstance(part, bytes)
    assert part.endswith(b"\0\0\0\x02xy")


# Requests that come again


VERSIONS = range(19)
TOPICS = {"a": 3, "a-long-name-that-needs-more": 1, "b" * 200: 200}
NAMES = {UUID(int=number + 1): name for number, name in enumerate(TOPICS)}


def request() -> FetchRequest:
    topics = [
        FetchTopic(
            topic=name,
            topic_id=UUID(int=number + 1),
            partitions=[
                FetchPartition(partition=index, fetch_offset=7, partition_max_bytes=1 << 20)
                for index in range(count)
            ],
        )
        for number, (name, count) in enumerate(TOPICS.items())
    ]
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 25, topics=topics)


def as_read(asked: FetchRequest, version: int) -> FetchRequest:
    return decode(FetchRequest, version, encode(asked, version))


def remembered(asked: FetchRequest, version: int) -> FetchBytes:
    return FetchBytes(as_read(asked, version), version, encode(asked, version))


def places(asked: FetchRequest) -> list[FetchPartition]:
    return [partition for topic in asked.topics for partition in topic.partitions]


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_next_request_is_known_by_what_differs(version: int, turns: bool) -> None:
    random = Random(version)
    asked = request()
    last = remembered(asked, version)
    assert last.is_regular
    numbers = {place.key: number for number, place in enumerate(named(asked))}
    for _ in range(20):
        moved = random.sample(named(asked), random.choice((0, 1, 1, 5, 204)))
        for _, _, place in moved:
            place.fetch_offset += random.randint(1, 1 << 40)
            place.partition_max_bytes = random.randint(1, 1 << 30)
            place.current_leader_epoch = random.randint(0, 9)
        asked.max_wait_ms = random.randint(0, 1000)
        if turns:
            asked = turned(asked, random)
        read = as_read(asked, version)
        expected = {
            numbers[place.key]: (
                place.partition.partition,
                place.partition.current_leader_epoch,
                place.partition.fetch_offset,
                place.partition.last_fetched_epoch,
                place.partition.partition_max_bytes,
            )
            for place, original in zip(named(read), named(asked), strict=True)
            if original in moved
        }
        assert last.advance(version, encode(asked, version)) == expected
        assert last.request.max_wait_ms == read.max_wait_ms


class Named(NamedTuple):
    topic: str
    topic_id: UUID
    partition: FetchPartition

    @property
    def key(self) -> tuple[str, int]:
        """What is the same in all versions: some have names, some have ids."""
        return self.topic or NAMES[self.topic_id], self.partition.partition


def named(asked: FetchRequest) -> list[Named]:
    return [
        Named(topic.topic, topic.topic_id, partition)
        for topic in asked.topics
        for partition in topic.partitions
    ]


def turned(asked: FetchRequest, random: Random) -> FetchRequest:
    """The same as librdkafka would ask next: from another partition on, and round."""
    places = named(asked)
    first = random.randrange(len(places))
    other = deepcopy(asked)
    other.topics = [
        FetchTopic(topic=name, topic_id=topic_id, partitions=[each.partition for each in group])
        for (name, topic_id), group in groupby(
            [*places[first:], *places[:first]], lambda each: (each.topic, each.topic_id)
        )
    ]
    return other


def changes(asked: FetchRequest, version: int) -> list[FetchRequest]:
    """Requests that are not the same again."""
    found = []

    def another() -> FetchRequest:
        found.append(deepcopy(asked))
        return found[-1]

    another().topics[1].topic = "a-long-name-that-needs-Less"
    another().topics[1].topic_id = UUID(int=99)
    del another().topics[0]
    del another().topics[2].partitions[0]
    places(another())[0].partition = 77
    places(another())[5].partition = 7
    if version >= 4:
        another().isolation_level = 1
    if version >= 7:
        another().session_id = 5
        another().session_epoch = 0
    if version >= 11:
        another().rack_id = "elsewhere"
    if version >= 12:
        another().cluster_id = "other"
    if version < 15:
        another().replica_id = 3
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_differs_in_more_than_positions_is_another_one(version: int) -> None:
    asked = request()
    last = remembered(asked, version)
    body = encode(asked, version)
    for other in changes(asked, version):
        different = encode(other, version)
        if different != body:
            assert last.advance(version, different) is None
        assert last.advance(version, body) == {}
    assert last.advance(version + 1, body) is None
    for size in range(len(body)):
        assert last.advance(version, body[:size]) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_any_bytes_are_refused_or_understood(version: int) -> None:
    random = Random(version)
    body = encode(request(), version)
    last = remembered(request(), version)
    for _ in range(300):
        spoilt = bytearray(body)
        for _ in range(random.randint(1, 4)):
            spoilt[random.randrange(len(spoilt))] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
        last.advance(version, bytes(spoilt))


@pytest.mark.parametrize("version", [17, 18])
def test_a_request_with_tagged_fields_in_a_partition_is_not_regular(version: int) -> None:
    asked = request()
    places(asked)[1].replica_directory_id = UUID(int=4)
    assert not remembered(asked, version).is_regular


# Answers that are sent again


def answer(number: int, random: Random) -> PartitionData:
    partition = number if number < 3 else 0 if number == 3 else number - 4
    records = random.choice((b"", b"", b"", b"some", FileRange(FileInMemory(), 0, 40)))
    return PartitionData(
        partition_index=partition,
        error_code=random.choice((0, 0, 6)),
        high_watermark=random.randint(0, 1 << 50),
        last_stable_offset=random.randint(0, 1 << 50),
        aborted_transactions=None,
        current_leader=random.choice((None, LeaderIdAndEpoch(leader_id=1, leader_epoch=2))),
        records=records,
    )


def whole(answers: list[PartitionData], nodes: list[NodeEndpoint]) -> FetchResponse:
    left = iter(answers)
    topics = [
        FetchableTopicResponse(
            topic=name,
            topic_id=UUID(int=number + 1),
            partitions=[next(left) for _ in range(count)],
        )
        for number, (name, count) in enumerate(TOPICS.items())
    ]
    return FetchResponse(responses=topics, node_endpoints=nodes)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_of_kept_parts_has_the_bytes_of_a_new_one(version: int) -> None:
    random = Random(version)
    reply = FetchReply(as_read(request(), version), version)
    count = sum(TOPICS.values())
    answers = [answer(number, random) for number in range(count)]
    news = list(range(count))
    for _ in range(10):
        nodes = []
        if version >= 16 and random.random() < 0.5:
            nodes = [NodeEndpoint(node_id=1, host="host", port=9092)]
        body = reply.fill([(number, answers[number]) for number in news], nodes)
        assert joined(body) == joined(encode_fetch_response(whole(answers, nodes), version))
        # What had records is said again in any case.
        again = [number for number in range(count) if answers[number].records]
        news = sorted({*again, *random.sample(range(count), 3)})
        for number in news:
            answers[number] = answer(number, random)
