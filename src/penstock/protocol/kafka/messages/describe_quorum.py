"""DescribeQuorum: who holds a replicated log, who leads it, and how far behind the others are."""

from uuid import UUID

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import (
    array,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uint16,
    uuid,
)


@struct
class QuorumPartition:
    partition_index: int = int32("0+")


@struct
class QuorumTopic:
    topic_name: str = string("0+")
    partitions: list[QuorumPartition] = array(QuorumPartition, "0+")


@message(ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: list[QuorumTopic] = array(QuorumTopic, "0+")


@struct
class ReplicaState:
    replica_id: int = int32("0+")
    replica_directory_id: UUID = uuid("2+")
    log_end_offset: int = int64("0+")
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


@struct
class PartitionData:
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    high_watermark: int = int64("0+")
    current_voters: list[ReplicaState] = array(ReplicaState, "0+")
    observers: list[ReplicaState] = array(ReplicaState, "0+")


@struct
class TopicData:
    topic_name: str = string("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


@struct
class Listener:
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


@struct
class Node:
    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


@message(ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+")
    topics: list[TopicData] = array(TopicData, "0+")
    nodes: list[Node] = array(Node, "2+")
