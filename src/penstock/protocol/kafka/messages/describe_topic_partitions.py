"""DescribeTopicPartitions: where partitions live, page by page."""

from uuid import UUID

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.metadata import OPERATIONS_NOT_REQUESTED
from penstock.protocol.kafka.schema import (
    array,
    boolean,
    int16,
    int32,
    message,
    nested,
    string,
    struct,
    uuid,
)


@struct
class TopicRequest:
    name: str = string("0+")


@struct
class Cursor:
    topic_name: str = string("0+")
    partition_index: int = int32("0+")


@message(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = array(TopicRequest, "0+")
    response_partition_limit: int = int32("0+", default=2_000)
    cursor: Cursor | None = nested(Cursor, "0+", nullable="0+")


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+", default=-1)
    replica_nodes: list[int] = array(int32, "0+")
    isr_nodes: list[int] = array(int32, "0+")
    eligible_leader_replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None)
    last_known_elr: list[int] | None = array(int32, "0+", nullable="0+", default=None)
    offline_replicas: list[int] = array(int32, "0+")


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="0+")
    topic_id: UUID = uuid("0+")
    is_internal: bool = boolean("0+")
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition, "0+"
    )
    topic_authorized_operations: int = int32("0+", default=OPERATIONS_NOT_REQUESTED)


@message(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = int32("0+")
    topics: list[DescribeTopicPartitionsResponseTopic] = array(
        DescribeTopicPartitionsResponseTopic, "0+"
    )
    next_cursor: Cursor | None = nested(Cursor, "0+", nullable="0+")
