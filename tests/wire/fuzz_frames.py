"""Valid requests of every API and version, and a mutator that makes bad ones by the million."""

import random
import struct
from collections.abc import Callable

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.catalogue import EXCHANGES
from penstock.protocol.kafka.codec import encode
from penstock.protocol.kafka.headers import encode_request_header
from penstock.protocol.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from penstock.protocol.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.protocol.kafka.schema import Struct, schema_of
from penstock.records.batch import build_batch
from penstock.records.record import Record
from tests.wire.samples import sample

# The topic that exists; most requests are about it.
TOPIC = "fuzz"
SAMPLES_PER_VERSION = 4
LONGEST = 4_000
CLIENT = "fuzz"
_LENGTH = struct.Struct(">i")
# Where the client id ends.
_BODY = 10 + len(CLIENT)
# Lengths at the edges of what a length field or a varint can say.
_EDGES = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff",
    b"\x7f\xff",
    b"\x00\x00",
    b"\x00",
    b"\xff",
)


def base_frames(rng: random.Random) -> list[bytes]:
    """Requests without their length, of every API in every version that we can write."""
    frames: list[bytes] = []
    for key, exchange in EXCHANGES.items():
        first, last = schema_of(exchange.request).versions
        for version in range(first, last + 1):
            for _ in range(SAMPLES_PER_VERSION):
                message = _harmless(key, sample(exchange.request, version, rng))
                frames.append(_frame(key, version, message))
    for key, versions, message in _meaningful():
        frames += [_frame(key, version, message) for version in versions] * 3
    return [frame for frame in frames if len(frame) < LONGEST]


def _frame(key: ApiKey, version: int, message: object) -> bytes:
    return encode_request_header(key, version, 0, CLIENT) + encode(message, version)


def _harmless(key: ApiKey, message: object) -> object:
    """What would rightly make the node hold more and more must not be asked for all the time."""
    for field, value in _HARMLESS.get(key, {}).items():
        setattr(message, field, value)
    if key is not ApiKey.DELETE_TOPICS:
        _rename_topic(message)
    return message


def _rename_topic(part: object) -> None:
    if isinstance(part, list):
        part[:] = [TOPIC if item == "topic" else item for item in part]
        for item in part:
            _rename_topic(item)
    elif isinstance(part, Struct):
        for field in schema_of(type(part)).fields:
            value = getattr(part, field.name)
            if value == "topic":
                setattr(part, field.name, TOPIC)
            else:
                _rename_topic(value)


_HARMLESS: dict[ApiKey, dict[str, object]] = {
    ApiKey.CREATE_TOPICS: {"validate_only": True},
    ApiKey.CREATE_PARTITIONS: {"validate_only": True},
    ApiKey.JOIN_GROUP: {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 6_000},
    ApiKey.FETCH: {"max_wait_ms": 1},
}


def create_topic_frame() -> bytes:
    """A whole and valid request that makes the topic."""
    topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
    frame = _frame(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=9000))
    return _LENGTH.pack(len(frame)) + frame


def _meaningful() -> list[tuple[ApiKey, range, object]]:
    """Requests that succeed until they are mutated, and so reach further than random ones."""
    return [
        (ApiKey.PRODUCE, range(3, 13), _produce()),
        (ApiKey.FETCH, range(4, 13), _fetch()),
        (ApiKey.LIST_OFFSETS, range(1, 10), _list_offsets()),
        (ApiKey.JOIN_GROUP, range(10), _join_group()),
        (ApiKey.OFFSET_COMMIT, range(2, 10), _commit()),
    ]


def _produce() -> ProduceRequest:
    records = [
        Record(offset=index, timestamp_ms=1, key=b"k", value=b"v" * 20, headers=())
        for index in range(3)
    ]
    data = PartitionProduceData(index=0, records=build_batch(records))
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])


def _fetch() -> FetchRequest:
    partition = FetchPartition(partition=0, partition_max_bytes=10_000)
    topic = FetchTopic(topic=TOPIC, partitions=[partition])
    return FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=100_000, topics=[topic])


def _list_offsets() -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsTopic(name=TOPIC, partitions=[partition])
    return ListOffsetsRequest(replica_id=-1, topics=[topic])


def _join_group() -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"anything")
    return JoinGroupRequest(
        group_id="fuzz",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


def _commit() -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    return OffsetCommitRequest(group_id="fuzz", topics=[topic])


class Mutator:
    """Cheap on purpose: it must make frames faster than a broker can refuse them."""

    def __init__(self, rng: random.Random, frames: list[bytes]) -> None:
        self._random = rng.random
        self._bytes = rng.randbytes
        self._frames = frames
        self._number = 0
        # Mostly small changes: such a frame gets past the decoder and into a handler.
        self._ways: tuple[Callable[[bytearray, int], None], ...] = (
            *[self._nudge] * 40,
            *[self._flip] * 12,
            *[self._replace] * 3,
            *[self._edge] * 2,
            self._cut,
            self._insert,
            self._remove,
        )

    def burst(self, count: int) -> bytes:
        return b"".join([self._mutated() for _ in range(count)])

    def _mutated(self) -> bytes:
        chance = self._random
        frame = bytearray(self._frames[int(chance() * len(self._frames))])
        self._number = self._number % 1_000_000 + 1
        frame[4:8] = _LENGTH.pack(self._number)
        # Mostly behind the header, whose mutations end a connection before anything is tried.
        start = 0 if chance() < 0.05 else _BODY
        start = min(start, len(frame) - 1)
        rounds = 1 if chance() < 0.9 else 1 + int(chance() * 4)
        for _ in range(rounds):
            way = self._ways[int(chance() * len(self._ways))]
            way(frame, start + int(chance() * (len(frame) - start)))
        length = len(frame)
        if chance() < 0.002:
            length = int((chance() - 0.5) * 2**32)
        return _LENGTH.pack(length) + frame

    def _nudge(self, frame: bytearray, at: int) -> None:
        if at < len(frame):
            frame[at] ^= 1 << int(self._random() * 4)

    def _flip(self, frame: bytearray, at: int) -> None:
        if at < len(frame):
            frame[at] ^= 1 << int(self._random() * 8)

    def _replace(self, frame: bytearray, at: int) -> None:
        if at < len(frame):
            frame[at] = int(self._random() * 256)

    def _cut(self, frame: bytearray, at: int) -> None:
        del frame[at:]

    def _edge(self, frame: bytearray, at: int) -> None:
        edge = _EDGES[int(self._random() * len(_EDGES))]
        frame[at : at + len(edge)] = edge

    def _insert(self, frame: bytearray, at: int) -> None:
        frame[at:at] = self._bytes(1 + int(self._random() * 5))

    def _remove(self, frame: bytearray, at: int) -> None:
        del frame[at : at + 1 + int(self._random() * 3)]
