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
    def __init__(
        self,
        key: _Optional[bytes] = ...,
        value: _Optional[bytes] = ...,
        headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...,
        timestamp_ms: _Optional[int] = ...,
        partition: _Optional[int] = ...,
    ) -> None: ...

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
    def __init__(
        self,
        offset: _Optional[int] = ...,
        timestamp_ms: _Optional[int] = ...,
        key: _Optional[bytes] = ...,
        value: _Optional[bytes] = ...,
        headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...,
    ) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("topic", "records", "idempotency_key")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    records: _containers.RepeatedCompositeFieldContainer[NewRecord]
    idempotency_key: str
    def __init__(
        self,
        topic: _Optional[str] = ...,
        records: _Optional[_Iterable[_Union[NewRecord, _Mapping]]] = ...,
        idempotency_key: _Optional[str] = ...,
    ) -> None: ...

class PublishReply(_message.Message):
    __slots__ = ("partitions", "offsets", "errors")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    errors: _containers.RepeatedCompositeFieldContainer[RecordError]
    def __init__(
        self,
        partitions: _Optional[_Iterable[int]] = ...,
        offsets: _Optional[_Iterable[int]] = ...,
        errors: _Optional[_Iterable[_Union[RecordError, _Mapping]]] = ...,
    ) -> None: ...

class RecordError(_message.Message):
    __slots__ = ("index", "problem")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    index: int
    problem: Problem
    def __init__(
        self, index: _Optional[int] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ...
    ) -> None: ...

class Problem(_message.Message):
    __slots__ = ("code", "reason", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: str
    message: str
    def __init__(
        self,
        code: _Optional[int] = ...,
        reason: _Optional[str] = ...,
        message: _Optional[str] = ...,
    ) -> None: ...

class PublishStreamReply(_message.Message):
    __slots__ = ("written", "problem")
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    written: PublishReply
    problem: Problem
    def __init__(
        self,
        written: _Optional[_Union[PublishReply, _Mapping]] = ...,
        problem: _Optional[_Union[Problem, _Mapping]] = ...,
    ) -> None: ...

class Start(_message.Message):
    __slots__ = ("offset", "timestamp_ms", "edge")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    timestamp_ms: int
    edge: Edge
    def __init__(
        self,
        offset: _Optional[int] = ...,
        timestamp_ms: _Optional[int] = ...,
        edge: _Optional[_Union[Edge, str]] = ...,
    ) -> None: ...

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
    def __init__(
        self,
        topic: _Optional[str] = ...,
        partition: _Optional[int] = ...,
        start: _Optional[_Union[Start, _Mapping]] = ...,
        records_max: _Optional[int] = ...,
        wait_ms: _Optional[int] = ...,
    ) -> None: ...

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
    def __init__(
        self,
        records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...,
        next_offset: _Optional[int] = ...,
        log_start_offset: _Optional[int] = ...,
        high_watermark: _Optional[int] = ...,
    ) -> None: ...

class SeekRequest(_message.Message):
    __slots__ = ("topic", "partition", "start")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    start: Start
    def __init__(
        self,
        topic: _Optional[str] = ...,
        partition: _Optional[int] = ...,
        start: _Optional[_Union[Start, _Mapping]] = ...,
    ) -> None: ...

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
    def __init__(
        self,
        start: _Optional[_Union[StartSubscription, _Mapping]] = ...,
        credit: _Optional[int] = ...,
        commit: _Optional[_Union[Positions, _Mapping]] = ...,
    ) -> None: ...

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
    def __init__(
        self,
        topic: _Optional[str] = ...,
        partitions: _Optional[_Iterable[int]] = ...,
        start: _Optional[_Union[Start, _Mapping]] = ...,
        group: _Optional[str] = ...,
        positions: _Optional[_Iterable[_Union[Position, _Mapping]]] = ...,
        credit: _Optional[int] = ...,
    ) -> None: ...

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
    def __init__(
        self, positions: _Optional[_Iterable[_Union[Position, _Mapping]]] = ...
    ) -> None: ...

class SubscribeReply(_message.Message):
    __slots__ = ("started", "records", "committed")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    started: Positions
    records: PartitionRecords
    committed: Positions
    def __init__(
        self,
        started: _Optional[_Union[Positions, _Mapping]] = ...,
        records: _Optional[_Union[PartitionRecords, _Mapping]] = ...,
        committed: _Optional[_Union[Positions, _Mapping]] = ...,
    ) -> None: ...

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
    def __init__(
        self,
        partition: _Optional[int] = ...,
        records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...,
        next_offset: _Optional[int] = ...,
        high_watermark: _Optional[int] = ...,
    ) -> None: ...

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
    def __init__(
        self,
        group_id: _Optional[str] = ...,
        type: _Optional[str] = ...,
        state: _Optional[str] = ...,
        protocol_type: _Optional[str] = ...,
    ) -> None: ...

class GroupList(_message.Message):
    __slots__ = ("groups", "unreached")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    UNREACHED_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupSummary]
    unreached: _containers.RepeatedScalarFieldContainer[int]
    def __init__(
        self,
        groups: _Optional[_Iterable[_Union[GroupSummary, _Mapping]]] = ...,
        unreached: _Optional[_Iterable[int]] = ...,
    ) -> None: ...

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
    def __init__(
        self,
        member_id: _Optional[str] = ...,
        instance_id: _Optional[str] = ...,
        client_id: _Optional[str] = ...,
        client_host: _Optional[str] = ...,
    ) -> None: ...

class GroupDetails(_message.Message):
    __slots__ = ("summary", "members")
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    summary: GroupSummary
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    def __init__(
        self,
        summary: _Optional[_Union[GroupSummary, _Mapping]] = ...,
        members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ...,
    ) -> None: ...

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
    def __init__(
        self,
        topic: _Optional[str] = ...,
        partition: _Optional[int] = ...,
        offset: _Optional[int] = ...,
        metadata: _Optional[str] = ...,
    ) -> None: ...

class ReadGroupOffsetsRequest(_message.Message):
    __slots__ = ("group_id",)
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    def __init__(self, group_id: _Optional[str] = ...) -> None: ...

class GroupOffsets(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    def __init__(
        self, offsets: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ...
    ) -> None: ...

class CommitGroupOffsetsRequest(_message.Message):
    __slots__ = ("group_id", "offsets")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    offsets: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    def __init__(
        self,
        group_id: _Optional[str] = ...,
        offsets: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ...,
    ) -> None: ...

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
    def __init__(
        self,
        name: _Optional[str] = ...,
        topic_id: _Optional[str] = ...,
        partitions: _Optional[int] = ...,
        replication_factor: _Optional[int] = ...,
        is_internal: _Optional[bool] = ...,
    ) -> None: ...

class TopicList(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicSummary]
    def __init__(
        self, topics: _Optional[_Iterable[_Union[TopicSummary, _Mapping]]] = ...
    ) -> None: ...

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
    def __init__(
        self,
        partition: _Optional[int] = ...,
        leader: _Optional[int] = ...,
        term: _Optional[int] = ...,
        replicas: _Optional[_Iterable[int]] = ...,
        in_sync: _Optional[_Iterable[int]] = ...,
        start_offset: _Optional[int] = ...,
        end_offset: _Optional[int] = ...,
    ) -> None: ...

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
    def __init__(
        self,
        summary: _Optional[_Union[TopicSummary, _Mapping]] = ...,
        settings: _Optional[_Mapping[str, str]] = ...,
        partitions: _Optional[_Iterable[_Union[PartitionDetails, _Mapping]]] = ...,
    ) -> None: ...

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
    def __init__(
        self,
        name: _Optional[str] = ...,
        partitions: _Optional[int] = ...,
        replication_factor: _Optional[int] = ...,
        settings: _Optional[_Mapping[str, str]] = ...,
        validate_only: _Optional[bool] = ...,
    ) -> None: ...

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
    def __init__(
        self,
        name: _Optional[str] = ...,
        value: _Optional[str] = ...,
        source: _Optional[str] = ...,
        is_read_only: _Optional[bool] = ...,
        documentation: _Optional[str] = ...,
    ) -> None: ...

class SettingList(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: _containers.RepeatedCompositeFieldContainer[SettingDetails]
    def __init__(
        self, settings: _Optional[_Iterable[_Union[SettingDetails, _Mapping]]] = ...
    ) -> None: ...

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
    def __init__(
        self,
        kind: _Optional[str] = ...,
        name: _Optional[str] = ...,
        changes: _Optional[_Iterable[_Union[SettingChange, _Mapping]]] = ...,
    ) -> None: ...

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
    def __init__(
        self,
        node: _Optional[int] = ...,
        address: _Optional[str] = ...,
        rack: _Optional[str] = ...,
        is_alive: _Optional[bool] = ...,
        is_controller: _Optional[bool] = ...,
    ) -> None: ...

class ClusterDetails(_message.Message):
    __slots__ = ("cluster_id", "nodes")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    nodes: _containers.RepeatedCompositeFieldContainer[NodeDetails]
    def __init__(
        self,
        cluster_id: _Optional[str] = ...,
        nodes: _Optional[_Iterable[_Union[NodeDetails, _Mapping]]] = ...,
    ) -> None: ...

class DescribeNodeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("node", "unready", "gauges")
    class GaugesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

    NODE_FIELD_NUMBER: _ClassVar[int]
    UNREADY_FIELD_NUMBER: _ClassVar[int]
    GAUGES_FIELD_NUMBER: _ClassVar[int]
    node: int
    unready: str
    gauges: _containers.ScalarMap[str, float]
    def __init__(
        self,
        node: _Optional[int] = ...,
        unready: _Optional[str] = ...,
        gauges: _Optional[_Mapping[str, float]] = ...,
    ) -> None: ...
