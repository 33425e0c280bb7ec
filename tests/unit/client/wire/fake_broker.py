"""Brokers that speak the real protocol over real sockets and say what a test tells them to."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import UUID

from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.catalogue import EXCHANGES
from penstock.protocol.kafka.codec import decode, encode
from penstock.protocol.kafka.headers import decode_request_header, encode_response_header
from penstock.protocol.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.protocol.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.protocol.kafka.messages.init_producer_id import InitProducerIdResponse
from penstock.protocol.kafka.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.protocol.kafka.schema import schema_of
from penstock.records.batch import BatchHeader, build_batch, check_batch
from penstock.records.record import Record

SIZE = struct.Struct(">i")
TOPIC = "orders"
TOPIC_ID = UUID(int=7)
PRODUCER_ID = 41
# Answers that end the connection, or never come.
HANG_UP = object()
SILENCE = object()

# How long anything may take on a machine that is busy with other things.
PATIENCE_S = 60.0

Handler = Callable[[Any, int], object]


def at(partition: int = 0, topic: str = TOPIC) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))


def batch(*values: bytes, base_offset: int = 0) -> bytes:
    records = [
        Record(offset=0, timestamp_ms=1_000, key=None, value=value, headers=()) for value in values
    ]
    return build_batch(records, base_offset=base_offset)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.005)


def begun_since(before: Collection[threading.Thread]) -> list[threading.Thread]:
    """Threads that live now; those of earlier tests are not this one's business."""
    return [one for one in threading.enumerate() if one not in before]


class Asked(NamedTuple):
    key: ApiKey
    version: int
    request: Any


class FakeCluster:
    """Nodes 1 to `nodes`; `leaders` says who leads which partition of the topic, and since when."""

    def __init__(self, nodes: int = 1, *, versions: dict[ApiKey, tuple[int, int]] | None = None):
        self.leaders: dict[int, tuple[int, int]] = {0: (1, 1)}
        self.topic_id = TOPIC_ID
        self.versions = versions or {}
        self.nodes = {number: FakeBroker(self) for number in range(1, nodes + 1)}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self.nodes.values():
            node.close()

    def __getitem__(self, number: int) -> "FakeBroker":
        return self.nodes[number]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    def metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        wanted = [TOPIC] if request.topics is None else [one.name for one in request.topics]
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=node, leader_epoch=epoch)
            for index, (node, epoch) in self.leaders.items()
        ]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=number, host="127.0.0.1", port=node.port)
                for number, node in self.nodes.items()
            ],
            topics=[
                MetadataResponseTopic(name=name, topic_id=self.topic_id, partitions=partitions)
                if name == TOPIC
                else MetadataResponseTopic(name=name, error_code=3)
                for name in wanted
            ],
        )


class FakeBroker:
    """Answers by `handlers`; whatever else is asked ends the connection."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.asked: list[Asked] = []
        self.handlers: dict[ApiKey, Handler] = {
            ApiKey.METADATA: cluster.metadata,
            ApiKey.INIT_PRODUCER_ID: lambda request, version: InitProducerIdResponse(
                producer_id=PRODUCER_ID
            ),
        }
        # What is done once with the bytes of an answer, for damage on the way.
        self.damage: Callable[[bytes], bytes] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: set[socket.socket] = set()
        self._is_closed = False
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            # A thread that still waits in the system for this listener may wake up with another
            # one's connection, once that has got its number; so it is woken and ends first.
            socket.create_connection(("127.0.0.1", self.port)).close()
            self._accepting.join()
            self._listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def requests(self, key: ApiKey) -> list[Any]:
        return [one.request for one in self.asked if one.key == key]

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._is_closed:
                connection.close()
                return
            self._connections.add(connection)
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, suppress(OSError), connection.makefile("rb") as stream:
            while prefix := stream.read(SIZE.size):
                answer = self._answer(stream.read(*SIZE.unpack(prefix)))
                if answer is None:
                    break
                connection.sendall(answer)
        self._connections.discard(connection)

    def _answer(self, frame: bytes) -> bytes | None:
        header, position = decode_request_header(memoryview(frame))
        key = ApiKey(header.api_key)
        request = decode(EXCHANGES[key].request, header.api_version, frame, position)
        if key == ApiKey.API_VERSIONS:
            answer: object = self._versions()
        else:
            self.asked.append(Asked(key, header.api_version, request))
            handler = self.handlers.get(key, lambda request, version: HANG_UP)
            answer = handler(request, header.api_version)
        if answer is HANG_UP:
            return None
        if answer is SILENCE:
            return b""
        body = encode_response_header(key, header.api_version, header.correlation_id) + (
            answer if isinstance(answer, bytes) else encode(answer, header.api_version)
        )
        framed = SIZE.pack(len(body)) + body
        damage, self.damage = (
            (None, self.damage) if key == ApiKey.API_VERSIONS else (self.damage, None)
        )
        return framed if damage is None else damage(framed)

    def _versions(self) -> ApiVersionsResponse:
        offered = {key: schema_of(one.request).versions for key, one in EXCHANGES.items()}
        offered |= self.cluster.versions
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in offered.items()
            ]
        )


def fetched(
    records: bytes | None = None, *, high_watermark: int = 0, code: int = 0, **fields: Any
) -> FetchResponse:
    """An answer about partition 0; `node_endpoints` and `throttle_time_ms` go to its outside."""
    outside = {name: fields.pop(name) for name in ("node_endpoints",) if name in fields}
    data = PartitionData(
        partition_index=fields.pop("partition_index", 0),
        error_code=code,
        high_watermark=high_watermark,
        last_stable_offset=fields.pop("last_stable_offset", high_watermark),
        log_start_offset=0,
        records=records,
        **fields,
    )
    topic = FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[data])
    return FetchResponse(responses=[topic], **outside)


def wanted_offset(request: FetchRequest) -> int:
    return request.topics[0].partitions[0].fetch_offset


class FakeLog:
    """Partition 0 as a leader keeps it, with the books about its producers (KIP-98)."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.headers: list[BatchHeader] = []
        # Codes that the next batches are refused with; None lets one through.
        self.refusals: list[int | None] = []
        # Whether the answer to a batch that was written is lost.
        self.losses: list[bool] = []
        # A leader takes one request after the other, also when a client sends one again through
        # a new connection while the old one is still being served.
        self._turn = threading.Lock()

    @property
    def values(self) -> list[tuple[int, int, int]]:
        """Epoch, sequence and count of what was written."""
        return [(one.producer_epoch, one.base_sequence, one.record_count) for one in self.headers]

    def forget_producers(self) -> None:
        self.headers.clear()

    def produce(self, request: ProduceRequest, version: int) -> object:
        with self._turn:
            return self._produce(request)

    def _produce(self, request: ProduceRequest) -> object:
        parts = [
            (topic.name, data) for topic in request.topic_data for data in topic.partition_data
        ]
        answers = [self._take(bytes(data.records or b""), data.index) for _, data in parts]
        if self.losses and self.losses.pop(0):
            return HANG_UP
        if request.acks == 0:
            return SILENCE
        return ProduceResponse(
            responses=[TopicProduceResponse(name=parts[0][0], partition_responses=answers)]
        )

    def _take(self, data: bytes, index: int) -> PartitionProduceResponse:
        header = check_batch(data)
        refusal = self.refusals.pop(0) if self.refusals else None
        code = self._check(header) if refusal is None else refusal
        if code == 0:
            self.batches.append(data)
            self.headers.append(header)
        # A duplicate is acknowledged without being written again.
        return PartitionProduceResponse(index=index, error_code=max(code, 0))

    def _check(self, header: BatchHeader) -> int:
        known = [one for one in self.headers if one.producer_id == header.producer_id]
        if not known or header.producer_id < 0:
            return 0
        last = known[-1]
        if header.producer_epoch > last.producer_epoch:
            return 0 if header.base_sequence == 0 else 45
        if any(one[9:12] == header[9:12] for one in known[-5:]):
            return -1
        return 0 if header.base_sequence == last.last_sequence + 1 else 45
