from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Edge(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EDGE_UNSPECIFIED: _ClassVar[Edge]
    EDGE_EARLIEST: _ClassVar[Edge]
    EDGE_LATEST: _ClassVar[Edge]
EDGE_UNSPECIFIED: Edge
EDGE_EARLIEST: Edge
EDGE_LATEST: Edge

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Header(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class NewRecord(_message.Message):
    __slots__ = ("key", "value", "headers", "timestamp_ms", "partition")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    timestamp_ms: int
    partition: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., timestamp_ms: _Optional[int] = ..., partition: _Optional[int] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("offset", "timestamp_ms", "key", "value", "headers")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    def __init__(self, offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("topic", "records", "idempotency_key")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    records: _containers.RepeatedCompositeFieldContainer[NewRecord]
    idempotency_key: str
    def __init__(self, topic: _Optional[str] = ..., records: _Optional[_Iterable[_Union[NewRecord, _Mapping]]] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class PublishReply(_message.Message):
    __slots__ = ("partitions", "offsets", "errors")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    errors: _containers.RepeatedCompositeFieldContainer[RecordError]
    def __init__(self, partitions: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ..., errors: _Optional[_Iterable[_Union[RecordError, _Mapping]]] = ...) -> None: ...

class RecordError(_message.Message):
    __slots__ = ("index", "problem")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    index: int
    problem: Problem
    def __init__(self, index: _Optional[int] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("code", "reason", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: str
    message: str
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class PublishStreamReply(_message.Message):
    __slots__ = ("written", "problem")
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    written: PublishReply
    problem: Problem
    def __init__(self, written: _Optional[_Union[PublishReply, _Mapping]] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("offset", "timestamp_ms", "edge")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    timestamp_ms: int
    edge: Edge
    def __init__(self, offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., edge: _Optional[_Union[Edge, str]] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("topic", "partition", "start", "records_max", "wait_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    RECORDS_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    start: Start
    records_max: int
    wait_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., records_max: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class FetchReply(_message.Message):
    __slots__ = ("records", "next_offset", "log_start_offset", "high_watermark")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    next_offset: int
    log_start_offset: int
    high_watermark: int
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., next_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ...) -> None: ...

class SeekRequest(_message.Message):
    __slots__ = ("topic", "partition", "start")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    start: Start
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., start: _Optional[_Union[Start, _Mapping]] = ...) -> None: ...

class SeekReply(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("start", "credit", "commit")
    START_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    start: StartSubscription
    credit: int
    commit: Positions
    def __init__(self, start: _Optional[_Union[StartSubscription, _Mapping]] = ..., credit: _Optional[int] = ..., commit: _Optional[_Union[Positions, _Mapping]] = ...) -> None: ...

class StartSubscription(_message.Message):
    __slots__ = ("topic", "partitions", "start", "group", "positions", "credit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    start: Start
    group: str
    positions: _containers.RepeatedCompositeFieldContainer[Position]
    credit: int
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., group: _Optional[str] = ..., positions: _Optional[_Iterable[_Union[Position, _Mapping]]] = ..., credit: _Optional[int] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("partition", "offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Positions(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[Position]
    def __init__(self, positions: _Optional[_Iterable[_Union[Position, _Mapping]]] = ...) -> None: ...

class SubscribeReply(_message.Message):
    __slots__ = ("started", "records", "committed")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    started: Positions
    records: PartitionRecords
    committed: Positions
    def __init__(self, started: _Optional[_Union[Positions, _Mapping]] = ..., records: _Optional[_Union[PartitionRecords, _Mapping]] = ..., committed: _Optional[_Union[Positions, _Mapping]] = ...) -> None: ...

class PartitionRecords(_message.Message):
    __slots__ = ("partition", "records", "next_offset", "high_watermark")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    partition: int
    records: _containers.RepeatedCompositeFieldContainer[Record]
    next_offset: int
    high_watermark: int
    def __init__(self, partition: _Optional[int] = ..., records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., next_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ...) -> None: ...

class PollRequest(_message.Message):
    __slots__ = ("topic", "group", "records_max", "wait_ms", "lease_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECORDS_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    records_max: int
    wait_ms: int
    lease_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., records_max: _Optional[int] = ..., wait_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class QueueMessage(_message.Message):
    __slots__ = ("partition", "record", "attempt", "token")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    partition: int
    record: Record
    attempt: int
    token: str
    def __init__(self, partition: _Optional[int] = ..., record: _Optional[_Union[Record, _Mapping]] = ..., attempt: _Optional[int] = ..., token: _Optional[str] = ...) -> None: ...

class PollReply(_message.Message):
    __slots__ = ("messages", "lease_ms")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[QueueMessage]
    lease_ms: int
    def __init__(self, messages: _Optional[_Iterable[_Union[QueueMessage, _Mapping]]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("topic", "group", "tokens")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    tokens: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., tokens: _Optional[_Iterable[str]] = ...) -> None: ...

class NackRequest(_message.Message):
    __slots__ = ("topic", "group", "tokens", "delay_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    tokens: _containers.RepeatedScalarFieldContainer[str]
    delay_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., tokens: _Optional[_Iterable[str]] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("topic", "group", "tokens", "lease_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    tokens: _containers.RepeatedScalarFieldContainer[str]
    lease_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., tokens: _Optional[_Iterable[str]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class RejectRequest(_message.Message):
    __slots__ = ("topic", "group", "tokens")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    tokens: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., tokens: _Optional[_Iterable[str]] = ...) -> None: ...

class TokenOutcomes(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[TokenOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[TokenOutcome, _Mapping]]] = ...) -> None: ...

class TokenOutcome(_message.Message):
    __slots__ = ("token", "outcome", "detail", "lease_ms")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    token: str
    outcome: str
    detail: str
    lease_ms: int
    def __init__(self, token: _Optional[str] = ..., outcome: _Optional[str] = ..., detail: _Optional[str] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class QueueSubscribeRequest(_message.Message):
    __slots__ = ("start", "credit", "ack", "nack", "extend", "reject")
    START_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    REJECT_FIELD_NUMBER: _ClassVar[int]
    start: StartQueueSubscription
    credit: int
    ack: Tokens
    nack: NackTokens
    extend: ExtendTokens
    reject: Tokens
    def __init__(self, start: _Optional[_Union[StartQueueSubscription, _Mapping]] = ..., credit: _Optional[int] = ..., ack: _Optional[_Union[Tokens, _Mapping]] = ..., nack: _Optional[_Union[NackTokens, _Mapping]] = ..., extend: _Optional[_Union[ExtendTokens, _Mapping]] = ..., reject: _Optional[_Union[Tokens, _Mapping]] = ...) -> None: ...

class StartQueueSubscription(_message.Message):
    __slots__ = ("topic", "group", "lease_ms", "credit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    lease_ms: int
    credit: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., lease_ms: _Optional[int] = ..., credit: _Optional[int] = ...) -> None: ...

class Tokens(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tokens: _Optional[_Iterable[str]] = ...) -> None: ...

class NackTokens(_message.Message):
    __slots__ = ("tokens", "delay_ms")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[str]
    delay_ms: int
    def __init__(self, tokens: _Optional[_Iterable[str]] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class ExtendTokens(_message.Message):
    __slots__ = ("tokens", "lease_ms")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[str]
    lease_ms: int
    def __init__(self, tokens: _Optional[_Iterable[str]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class QueueSubscribeReply(_message.Message):
    __slots__ = ("messages", "settled")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    messages: PollReply
    settled: TokenOutcomes
    def __init__(self, messages: _Optional[_Union[PollReply, _Mapping]] = ..., settled: _Optional[_Union[TokenOutcomes, _Mapping]] = ...) -> None: ...

class PeekRequest(_message.Message):
    __slots__ = ("topic", "group", "records_max")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECORDS_MAX_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    records_max: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., records_max: _Optional[int] = ...) -> None: ...

class PeekReply(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[QueueMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[QueueMessage, _Mapping]]] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("topic", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class QueuePartition(_message.Message):
    __slots__ = ("partition", "ready", "leased", "delayed", "blocked", "dying", "dead", "redriven", "oldest_ms", "expired")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    DYING_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    partition: int
    ready: int
    leased: int
    delayed: int
    blocked: int
    dying: int
    dead: int
    redriven: int
    oldest_ms: int
    expired: int
    def __init__(self, partition: _Optional[int] = ..., ready: _Optional[int] = ..., leased: _Optional[int] = ..., delayed: _Optional[int] = ..., blocked: _Optional[int] = ..., dying: _Optional[int] = ..., dead: _Optional[int] = ..., redriven: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., expired: _Optional[int] = ...) -> None: ...

class QueueState(_message.Message):
    __slots__ = ("partitions", "is_paused", "oldest_age_ms")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[QueuePartition]
    is_paused: bool
    oldest_age_ms: int
    def __init__(self, partitions: _Optional[_Iterable[_Union[QueuePartition, _Mapping]]] = ..., is_paused: _Optional[bool] = ..., oldest_age_ms: _Optional[int] = ...) -> None: ...

class PurgeRequest(_message.Message):
    __slots__ = ("topic", "group", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class PurgeReply(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("topic", "group", "limit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    limit: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class RedriveReply(_message.Message):
    __slots__ = ("reopened", "copied", "skipped", "is_finished")
    REOPENED_FIELD_NUMBER: _ClassVar[int]
    COPIED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    IS_FINISHED_FIELD_NUMBER: _ClassVar[int]
    reopened: int
    copied: int
    skipped: int
    is_finished: bool
    def __init__(self, reopened: _Optional[int] = ..., copied: _Optional[int] = ..., skipped: _Optional[int] = ..., is_finished: _Optional[bool] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("topic", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("topic", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GroupSummary(_message.Message):
    __slots__ = ("group_id", "type", "state", "protocol_type")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    type: str
    state: str
    protocol_type: str
    def __init__(self, group_id: _Optional[str] = ..., type: _Optional[str] = ..., state: _Optional[str] = ..., protocol_type: _Optional[str] = ...) -> None: ...

class GroupList(_message.Message):
    __slots__ = ("groups", "unreached")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    UNREACHED_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupSummary]
    unreached: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupSummary, _Mapping]]] = ..., unreached: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribeGroupRequest(_message.Message):
    __slots__ = ("group_id",)
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    def __init__(self, group_id: _Optional[str] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "client_id", "client_host")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    client_id: str
    client_host: str
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ...) -> None: ...

class GroupDetails(_message.Message):
    __slots__ = ("summary", "members")
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    summary: GroupSummary
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    def __init__(self, summary: _Optional[_Union[GroupSummary, _Mapping]] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("group_id",)
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    def __init__(self, group_id: _Optional[str] = ...) -> None: ...

class GroupOffset(_message.Message):
    __slots__ = ("topic", "partition", "offset", "metadata")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    metadata: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., metadata: _Optional[str] = ...) -> None: ...

class ReadGroupOffsetsRequest(_message.Message):
    __slots__ = ("group_id",)
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    def __init__(self, group_id: _Optional[str] = ...) -> None: ...

class GroupOffsets(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    def __init__(self, offsets: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ...) -> None: ...

class CommitGroupOffsetsRequest(_message.Message):
    __slots__ = ("group_id", "offsets")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    offsets: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    def __init__(self, group_id: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ...) -> None: ...

class AcquireLockRequest(_message.Message):
    __slots__ = ("name", "owner", "lease_ms", "wait_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    owner: str
    lease_ms: int
    wait_ms: int
    def __init__(self, name: _Optional[str] = ..., owner: _Optional[str] = ..., lease_ms: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class LockInfo(_message.Message):
    __slots__ = ("name", "owner", "fencing_token", "lease_ms", "left_ms", "waiters")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    WAITERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    owner: str
    fencing_token: int
    lease_ms: int
    left_ms: int
    waiters: int
    def __init__(self, name: _Optional[str] = ..., owner: _Optional[str] = ..., fencing_token: _Optional[int] = ..., lease_ms: _Optional[int] = ..., left_ms: _Optional[int] = ..., waiters: _Optional[int] = ...) -> None: ...

class RenewLockRequest(_message.Message):
    __slots__ = ("name", "owner", "fencing_token", "lease_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    owner: str
    fencing_token: int
    lease_ms: int
    def __init__(self, name: _Optional[str] = ..., owner: _Optional[str] = ..., fencing_token: _Optional[int] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class ReleaseLockRequest(_message.Message):
    __slots__ = ("name", "owner", "fencing_token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    owner: str
    fencing_token: int
    def __init__(self, name: _Optional[str] = ..., owner: _Optional[str] = ..., fencing_token: _Optional[int] = ...) -> None: ...

class DescribeLockRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class FoundLock(_message.Message):
    __slots__ = ("lock",)
    LOCK_FIELD_NUMBER: _ClassVar[int]
    lock: LockInfo
    def __init__(self, lock: _Optional[_Union[LockInfo, _Mapping]] = ...) -> None: ...

class ListLocksRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LockList(_message.Message):
    __slots__ = ("locks",)
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    locks: _containers.RepeatedCompositeFieldContainer[LockInfo]
    def __init__(self, locks: _Optional[_Iterable[_Union[LockInfo, _Mapping]]] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TopicSummary(_message.Message):
    __slots__ = ("name", "topic_id", "partitions", "replication_factor", "is_internal")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    IS_INTERNAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    is_internal: bool
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., is_internal: _Optional[bool] = ...) -> None: ...

class TopicList(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicSummary]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicSummary, _Mapping]]] = ...) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class PartitionDetails(_message.Message):
    __slots__ = ("partition", "leader", "term", "replicas", "in_sync", "start_offset", "end_offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    leader: int
    term: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    in_sync: _containers.RepeatedScalarFieldContainer[int]
    start_offset: int
    end_offset: int
    def __init__(self, partition: _Optional[int] = ..., leader: _Optional[int] = ..., term: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., in_sync: _Optional[_Iterable[int]] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class TopicDetails(_message.Message):
    __slots__ = ("summary", "settings", "partitions")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    summary: TopicSummary
    settings: _containers.ScalarMap[str, str]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionDetails]
    def __init__(self, summary: _Optional[_Union[TopicSummary, _Mapping]] = ..., settings: _Optional[_Mapping[str, str]] = ..., partitions: _Optional[_Iterable[_Union[PartitionDetails, _Mapping]]] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "partitions", "replication_factor", "settings", "validate_only")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    replication_factor: int
    settings: _containers.ScalarMap[str, str]
    validate_only: bool
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., settings: _Optional[_Mapping[str, str]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class GrowTopicRequest(_message.Message):
    __slots__ = ("name", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DescribeSettingsRequest(_message.Message):
    __slots__ = ("kind", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class SettingDetails(_message.Message):
    __slots__ = ("name", "value", "source", "is_read_only", "documentation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    IS_READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    source: str
    is_read_only: bool
    documentation: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[str] = ..., is_read_only: _Optional[bool] = ..., documentation: _Optional[str] = ...) -> None: ...

class SettingList(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: _containers.RepeatedCompositeFieldContainer[SettingDetails]
    def __init__(self, settings: _Optional[_Iterable[_Union[SettingDetails, _Mapping]]] = ...) -> None: ...

class SettingChange(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class ChangeSettingsRequest(_message.Message):
    __slots__ = ("kind", "name", "changes")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    changes: _containers.RepeatedCompositeFieldContainer[SettingChange]
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[SettingChange, _Mapping]]] = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodeDetails(_message.Message):
    __slots__ = ("node", "address", "rack", "is_alive", "is_controller")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    IS_ALIVE_FIELD_NUMBER: _ClassVar[int]
    IS_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    node: int
    address: str
    rack: str
    is_alive: bool
    is_controller: bool
    def __init__(self, node: _Optional[int] = ..., address: _Optional[str] = ..., rack: _Optional[str] = ..., is_alive: _Optional[bool] = ..., is_controller: _Optional[bool] = ...) -> None: ...

class ClusterDetails(_message.Message):
    __slots__ = ("cluster_id", "nodes")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    nodes: _containers.RepeatedCompositeFieldContainer[NodeDetails]
    def __init__(self, cluster_id: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[NodeDetails, _Mapping]]] = ...) -> None: ...

class DescribeNodeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("node", "unready")
    NODE_FIELD_NUMBER: _ClassVar[int]
    UNREADY_FIELD_NUMBER: _ClassVar[int]
    node: int
    unready: str
    def __init__(self, node: _Optional[int] = ..., unready: _Optional[str] = ...) -> None: ...
