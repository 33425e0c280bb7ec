"""Valid requests of every API and version, and a mutator that makes millions of bad ones of them."""

import random
from collections.abc import Callable
from struct import Struct

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.catalogue import EXCHANGES
from penstock.protocol.kafka.codec import encode
from penstock.protocol.kafka.headers import encode_request_header
from penstock.protocol.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.protocol.kafka.schema import schema_of
from penstock.records.batch import build_batch
from penstock.records.record import Record
from tests.wire.samples import sample

SAMPLES_PER_VERSION = 4
LONGEST = 4_000
_LENGTH = Struct(">i")
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
    frames += [_produce(version) for version in range(3, 13)]
    frames += [_fetch(version) for version in range(4, 13)]
    return [frame for frame in frames if len(frame) < LONGEST]


def _frame(key: ApiKey, version: int, message: object) -> bytes:
    return encode_request_header(key, version, 0, "fuzz") + encode(message, version)


def _harmless(key: ApiKey, message: object) -> object:
    """What would rightly make the node hold more and more must not be asked for all the time."""
    for field, value in _HARMLESS.get(key, {}).items():
        setattr(message, field, value)
    return message


_HARMLESS: dict[ApiKey, dict[str, object]] = {
    ApiKey.CREATE_TOPICS: {"validate_only": True},
    ApiKey.CREATE_PARTITIONS: {"validate_only": True},
    ApiKey.JOIN_GROUP: {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 6_000},
    ApiKey.FETCH: {"max_wait_ms": 1},
}


def _produce(version: int) -> bytes:
    records = [
        Record(offset=index, timestamp_ms=1, key=b"k", value=b"v" * 20, headers=())
        for index in range(3)
    ]
    data = PartitionProduceData(index=0, records=build_batch(records))
    topic = TopicProduceData(name="topic", partition_data=[data])
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
    return _frame(ApiKey.PRODUCE, version, request)


def _fetch(version: int) -> bytes:
    partition = FetchPartition(partition=0, partition_max_bytes=10_000)
    topic = FetchTopic(topic="topic", partitions=[partition])
    request = FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=100_000, topics=[topic])
    return _frame(ApiKey.FETCH, version, request)


class Mutator:
    """Cheap on purpose: it must make frames faster than a broker can refuse them."""

    def __init__(self, rng: random.Random, frames: list[bytes]) -> None:
        self._random = rng.random
        self._bytes = rng.randbytes
        self._frames = frames
        self._number = 0
        # Single bits most of all: such a frame often gets past the decoder.
        self._ways: tuple[Callable[[bytearray, int], None], ...] = (
            *[self._flip] * 10,
            *[self._replace] * 4,
            self._cut,
            self._edge,
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
        start = 0 if chance() < 0.05 else 8
        rounds = 1 if chance() < 0.8 else 1 + int(chance() * 4)
        for _ in range(rounds):
            way = self._ways[int(chance() * len(self._ways))]
            way(frame, start + int(chance() * (len(frame) - start)))
        length = len(frame)
        if chance() < 0.002:
            length = int((chance() - 0.5) * 2**32)
        return _LENGTH.pack(length) + frame

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
