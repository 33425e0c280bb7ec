"""What bodies look like: requests and answers as JSON. The OpenAPI description follows from it."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from penstock.frontdoor.http.limits import (
    RECORDS_PER_ANSWER,
    RECORDS_PER_ANSWER_MAX,
    RECORDS_PER_REQUEST_MAX,
    WAIT_S_MAX,
)
from penstock.frontdoor.http.problems import ProblemDocument as ProblemDocument
from penstock.frontdoor.remote.locks import LEASE_MS, WAIT_MS_MAX
from penstock.model.delivery_headers import DELAY_MS_MAX
from penstock.model.limits import LOCK_LEASE_MS_MAX, LOCK_LEASE_MS_MIN, LOCK_OWNER_LENGTH_MAX

Encoding = Literal["json", "text", "base64"]
Partition = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Milliseconds = Annotated[int, Meta(ge=0, le=2**53)]


T = TypeVar("T", bound=Struct)


def one(kind: type[T], source: Struct) -> T:
    """What the broker says, in a shape whose fields have the same names; it may have fewer."""
    return msgspec.convert(source, kind, from_attributes=True)


def many(kind: type[T], sources: Iterable[Struct]) -> list[T]:
    return [one(kind, source) for source in sources]


class Header(Struct, forbid_unknown_fields=True):
    """One header; names may repeat. `encoding` says what `value` is: text or base64."""

    name: str
    value: str | None = None
    encoding: Literal["text", "base64"] = "text"


class NewRecord(Struct, forbid_unknown_fields=True):
    """A record to be written. `encoding` says how `value` becomes bytes: "json" stores any JSON
    value as compact JSON text, "text" stores a string as UTF-8, "base64" the bytes that a string
    stands for. `null` and a missing value are stored as no value (a tombstone). `key_encoding` does
    the same for `key`, and is "text" by default. Queues whose group has penstock.queue.delay.enable
    deliver a record `delay_ms` after its timestamp, or at `deliver_at`: milliseconds since 1970, or
    a time as in RFC 3339."""

    # Not set is as good as empty, and takes no memory: there may be very many records.
    value: Raw | UnsetType = UNSET
    key: Raw | UnsetType = UNSET
    headers: dict[str, str | None] | list[Header] | UnsetType = UNSET
    partition: Partition | None = None
    timestamp: Milliseconds | None = None
    encoding: Encoding = "json"
    key_encoding: Encoding = "text"
    delay_ms: Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)] | None = None
    deliver_at: Milliseconds | Annotated[str, Meta(max_length=100)] | None = None


class NewRecords(Struct, forbid_unknown_fields=True):
    """Records to be written, in this order."""

    records: Annotated[list[NewRecord], Meta(min_length=1, max_length=RECORDS_PER_REQUEST_MAX)]


class Written(Struct, omit_defaults=True):
    """What became of a record: its place, or why it was not written."""

    partition: int | None = None
    offset: int | None = None
    error: ProblemDocument | None = None


class WrittenRecords(Struct):
    """One result for each record, in the order of the request."""

    results: list[Written]


class StoredRecord(Struct):
    """A record as it was read; it can be written again as it is, but for its place."""

    partition: int
    offset: int
    timestamp: int
    key: Raw
    key_encoding: Encoding
    value: Raw
    encoding: Encoding
    headers: list[Header]


class StoredRecords(Struct):
    """Records of a partition. Go on at `next_offset`; below `high_watermark` there is more."""

    records: list[StoredRecord]
    next_offset: int
    log_start_offset: int
    high_watermark: int


# Topics


class Topic(Struct):
    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    internal: bool


class Topics(Struct):
    topics: list[Topic]


class TopicPartition(Struct):
    partition: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]
    start_offset: int | None
    end_offset: int | None


class DescribedTopic(Struct):
    name: str
    topic_id: str
    internal: bool
    replication_factor: int
    settings: dict[str, str]
    partitions: list[TopicPartition]


class NewTopic(Struct, forbid_unknown_fields=True):
    """What is left out follows from the broker's settings."""

    name: str
    partitions: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=1_000)] | None = None
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    validate_only: bool = False


class TopicChange(Struct, forbid_unknown_fields=True):
    """The number of partitions that the topic shall have; it can only grow."""

    partitions: Annotated[int, Meta(ge=1, le=10_000)]


# Settings


class Setting(Struct):
    name: str
    value: str | None
    source: str
    read_only: bool
    documentation: str


class Settings(Struct):
    settings: list[Setting]


class SettingsChange(Struct, forbid_unknown_fields=True):
    """New values by name; null takes a setting back to its default. Others stay as they are."""

    settings: dict[str, str | None]


# Groups


class Group(Struct):
    group_id: str
    type: str
    state: str
    protocol_type: str


class Groups(Struct):
    """`unreached` are nodes that did not answer: their groups are missing."""

    groups: list[Group]
    unreached: list[int]


class Member(Struct):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


class DescribedGroup(Struct):
    group_id: str
    type: str
    state: str
    protocol_type: str
    members: list[Member]


class CommittedOffset(Struct, forbid_unknown_fields=True):
    topic: str
    partition: Partition
    offset: Offset
    metadata: str = ""


class CommittedOffsets(Struct, forbid_unknown_fields=True):
    offsets: Annotated[list[CommittedOffset], Meta(max_length=100_000)]


# Nodes


class Node(Struct):
    node: int
    kafka: str
    rack: str | None
    alive: bool
    controller: bool


class Cluster(Struct):
    cluster_id: str
    nodes: list[Node]


class Health(Struct, omit_defaults=True):
    status: Literal["ok", "unready"]
    node: int | UnsetType = UNSET
    detail: str | UnsetType = UNSET


# Consumers


class NewConsumer(Struct, forbid_unknown_fields=True):
    """A member of the group that reads these topics. `start` is for partitions without a committed
    offset. It leaves the group when nobody asks it for anything for `idle_ms`."""

    topics: Annotated[list[str], Meta(min_length=1, max_length=100)]
    start: Literal["earliest", "latest"] = "latest"
    idle_ms: Annotated[int, Meta(ge=10_000, le=3_600_000)] = 300_000


class MadeConsumer(Struct):
    """Use `consumer` in the paths of further requests, through the same node."""

    consumer: str
    group: str
    node: int
    idle_ms: int


class ConsumerPoll(Struct, forbid_unknown_fields=True):
    """`commit` commits what earlier polls delivered, before anything else."""

    limit: Annotated[int, Meta(ge=1, le=RECORDS_PER_ANSWER_MAX)] = RECORDS_PER_ANSWER
    wait_ms: Annotated[int, Meta(ge=0, le=int(WAIT_S_MAX * 1000))] = 0
    commit: bool = True
    encoding: Literal["auto", "json", "text", "base64"] = "auto"


class ConsumerCommit(Struct, forbid_unknown_fields=True):
    """Nothing has to be said: an empty object."""


class PolledRecords(Struct):
    """Records of one partition, in order."""

    topic: str
    records: list[StoredRecord]


class Polled(Struct):
    """What comes next, by partition."""

    partitions: list[PolledRecords]


# Locks

Token = Annotated[int, Meta(ge=1, le=2**63 - 1)]
LeaseMs = Annotated[int, Meta(ge=LOCK_LEASE_MS_MIN, le=LOCK_LEASE_MS_MAX)]
Owner = Annotated[str, Meta(min_length=1, max_length=LOCK_OWNER_LENGTH_MAX)]


class Lock(Struct):
    """A lock that somebody holds. Pass `fencing_token` to what the lock protects, which must refuse
    a smaller one than it has seen. The lease ends `left_ms` from now unless it is renewed."""

    name: str
    owner: str
    fencing_token: int
    lease_ms: int
    left_ms: int
    waiters: int


class Locks(Struct):
    locks: list[Lock]


class LockRequest(Struct, forbid_unknown_fields=True):
    """`owner` is a text of your choice, a different one for everybody who may hold the lock. A
    request that is repeated by the same owner gets the same lock and token."""

    owner: Owner
    lease_ms: LeaseMs = LEASE_MS
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] = 0


class LockRenewal(Struct, forbid_unknown_fields=True):
    """`lease_ms` changes the length of the lease."""

    owner: Owner
    fencing_token: Token
    lease_ms: LeaseMs | None = None


class LockRelease(Struct, forbid_unknown_fields=True):
    owner: Owner
    fencing_token: Token


# CloudEvents


class CloudEvent(Struct):
    """An event as JSON (CloudEvents 1.0); further attributes are kept."""

    id: Annotated[str, Meta(min_length=1)]
    source: Annotated[str, Meta(min_length=1)]
    type: Annotated[str, Meta(min_length=1)]
    specversion: Literal["1.0"]
    partitionkey: Annotated[str, Meta(min_length=1)] | None = None
    data: Any = None
