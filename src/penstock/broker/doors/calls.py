"""The calls of doors: one declaration each, from which both ends encode and decode.

A call names the type of its answer as its parameter, and its class is its method's name. Fields
travel by position (as MessagePack), so new ones go to the end and have a default: a broker and the
door that it started are of one version, but two nodes need not be.
"""

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any, Generic, TypeVar, get_args
from uuid import UUID

import msgspec

from penstock.model.errors import Reason, Refused

A = TypeVar("A")


class Answer(msgspec.Struct, array_like=True, kw_only=True):
    """What comes back, or a part of it."""


class Call(msgspec.Struct, Generic[A], array_like=True, kw_only=True):
    """What a door asks for."""


class Done(Answer):
    """It is done, and there is nothing more to say."""


# Streams


class TopicInfo(Answer):
    """What a door must know to write to a topic."""

    topic_id: UUID
    name: str
    partitions: int
    message_bytes_max: int


class FindTopic(Call[TopicInfo]):
    """Refused with UNKNOWN_TOPIC_OR_PARTITION if there is none; `may_create` makes it first, if
    the broker's settings allow that."""

    name: str
    may_create: bool = False


class ProducerIdentity(Answer):
    producer_id: int
    epoch: int


class Identify(Call[ProducerIdentity]):
    """A producer id that nobody else has, for batches that may be sent again."""


class Published(Answer):
    base_offset: int


class Publish(Call[Published]):
    """One batch with a producer id and sequence; answered when it is safe, see forwarding.py."""

    topic_id: UUID
    partition: int
    batch: bytes
    wait_s: float
    # The offset that it must get, or it is refused with OFFSET_NOT_EXPECTED; -1 takes any.
    expected: int = -1


class Batches(Answer):
    """Whole batches: the first may begin before the offset that was asked for."""

    batches: bytes
    log_start_offset: int
    high_watermark: int


class Read(Call[Batches]):
    """Batches from an offset on; waits up to `wait_s` until there are some."""

    topic_id: UUID
    partition: int
    offset: int
    bytes_max: int
    wait_s: float = 0.0


class FoundOffset(Answer):
    """-1 where there is no such record."""

    offset: int
    timestamp_ms: int


class FindOffset(Call[FoundOffset]):
    """The first record at or after a time, or -1 for the end and -2 for the start."""

    topic_id: UUID
    partition: int
    timestamp_ms: int


# Topics


class PartitionDetails(Answer):
    partition: int
    leader: int | None
    term: int
    replicas: list[int]
    in_sync: list[int]
    # None while nobody leads the partition.
    start_offset: int | None = None
    end_offset: int | None = None


class TopicSummary(Answer):
    name: str
    topic_id: UUID
    partitions: int
    replication_factor: int
    is_internal: bool


class TopicDetails(Answer):
    summary: TopicSummary
    settings: dict[str, str]
    partitions: list[PartitionDetails]


class TopicList(Answer):
    topics: list[TopicSummary]


class ListTopics(Call[TopicList]):
    pass


class DescribeTopic(Call[TopicDetails]):
    name: str


class CreateTopic(Call[TopicSummary]):
    """-1 takes the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    validate_only: bool = False


class DeleteTopic(Call[Done]):
    name: str


class GrowTopic(Call[TopicSummary]):
    name: str
    partitions: int


# Settings


class SettingDetails(Answer):
    name: str
    value: str | None
    # Who set it: "topic", "group", "dynamic_broker", "static_broker", "default" and so on.
    source: str
    is_read_only: bool
    documentation: str


class SettingList(Answer):
    settings: list[SettingDetails]


class DescribeSettings(Call[SettingList]):
    """Of a "topic", "broker" or "group"; the broker "" stands for all brokers."""

    kind: str
    name: str


class ChangeSettings(Call[Done]):
    """None takes a setting back to its default."""

    kind: str
    name: str
    changes: dict[str, str | None]


# Groups


class GroupSummary(Answer):
    group_id: str
    type: str
    state: str
    protocol_type: str


class GroupList(Answer):
    groups: list[GroupSummary]
    # Nodes that did not answer, whose groups are missing.
    unreached: list[int]


class ListGroups(Call[GroupList]):
    """Of all nodes."""


class ListOwnGroups(Call[GroupList]):
    """Those that the node coordinates."""


class GroupMember(Answer):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


class GroupDetails(Answer):
    summary: GroupSummary
    members: list[GroupMember]


class DescribeGroup(Call[GroupDetails]):
    group_id: str


class DeleteGroup(Call[Done]):
    group_id: str


class GroupOffset(Answer):
    topic: str
    partition: int
    offset: int
    metadata: str = ""


class GroupOffsets(Answer):
    offsets: list[GroupOffset]


class ReadGroupOffsets(Call[GroupOffsets]):
    group_id: str


class CommitGroupOffsets(Call[Done]):
    """From outside the group, which must have no members then."""

    group_id: str
    offsets: list[GroupOffset]


# Nodes


class NodeDetails(Answer):
    node: int
    address: str
    rack: str | None
    is_alive: bool
    is_controller: bool


class ClusterDetails(Answer):
    cluster_id: str
    nodes: list[NodeDetails]


class DescribeCluster(Call[ClusterDetails]):
    pass


class Status(Answer):
    """How the node is."""

    node: int
    # Empty when it is ready, else why it is not.
    unready: str


class DescribeNode(Call[Status]):
    """Of the node that is asked."""


class Copies(Answer):
    """How many copies of a node are not in sync, and the names of some of them."""

    node: int
    late: int
    named: list[str]


class DescribeCopies(Call[Copies]):
    """Of the node that is asked."""


# Metrics


class ClientValues(Answer):
    """The last values of one client (KIP-714)."""

    client_id: str
    instance_id: str
    # MetricsData of OpenTelemetry's protocol, in protobuf.
    otlp: bytes


class NodeMetrics(Answer):
    """Samples by family, see observe/families.py; and what clients pushed, to be decoded."""

    samples: dict[str, list[tuple[list[str], float | list[float]]]]
    clients: list[ClientValues]


class CollectMetrics(Call[NodeMetrics]):
    """Of the node that is asked."""


class Place(Answer):
    """An offset of a partition."""

    topic: str
    partition: int
    offset: int
    # Whether the time of the record there is wanted.
    with_time: bool


class FoundPlace(Answer):
    """-1 for what is not known here."""

    end_offset: int
    timestamp_ms: int


class FoundPlaces(Answer):
    places: list[FoundPlace]


class FindPlaces(Call[FoundPlaces]):
    """Where these partitions end, and when the records at these offsets were written."""

    places: list[Place]


# Bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Codec:
    """How one call and its answer become bytes."""

    call: msgspec.msgpack.Decoder[Any]
    answer: msgspec.msgpack.Decoder[Any]


_ENCODER = msgspec.msgpack.Encoder()

CALLS: dict[str, type[Call[Any]]] = {}


def declare(names: Mapping[str, Any]) -> None:
    """Makes the calls of a module known by their names."""
    CALLS.update(
        (name, found)
        for name, found in names.items()
        if isinstance(found, type) and issubclass(found, Call) and found is not Call
    )


declare(dict(globals()))


def encode(message: Call[Any] | Answer) -> bytes:
    return _ENCODER.encode(message)


@cache
def codec_of(call: type[Call[Any]]) -> Codec:
    (answer,) = get_args(call.__orig_bases__[0])  # type: ignore[attr-defined]
    return Codec(msgspec.msgpack.Decoder(call), msgspec.msgpack.Decoder(answer))


def decode_call(method: str, payload: bytes) -> Call[Any]:
    call = CALLS.get(method)
    if call is None:
        raise Refused(Reason.UNSUPPORTED_VERSION, f"This node does not know {method}.")
    try:
        decoded: Call[Any] = codec_of(call).call.decode(payload)
    except msgspec.MsgspecError as bad:
        raise Refused(Reason.INVALID_REQUEST, f"{method} is malformed: {bad}") from bad
    return decoded


def decode_answer(call: Call[A], payload: bytes) -> A:
    try:
        answer: A = codec_of(type(call)).answer.decode(payload)
    except msgspec.MsgspecError as bad:
        detail = f"The answer to {type(call).__name__} is malformed: {bad}"
        raise Refused(Reason.UNKNOWN_SERVER_ERROR, detail) from bad
    return answer
