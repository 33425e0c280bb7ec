"""Produce: append record batches to partitions. Topics go by id from version 13 on."""

from uuid import UUID

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import (
    array,
    int16,
    int32,
    int64,
    message,
    nested,
    records,
    string,
    struct,
    uuid,
)


@struct
class PartitionProduceData:
    index: int = int32("0+")
    records: memoryview | bytes | None = records("0+", nullable="0+")


@struct
class TopicProduceData:
    name: str = string("0-12")
    topic_id: UUID = uuid("13+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")


@message(ApiKey.PRODUCE, versions="0-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+")


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


@struct
class PartitionProduceResponse:
    index: int = int32("0+")
    error_code: int = int16("0+")
    base_offset: int = int64("0+")
    log_append_time_ms: int = int64("2+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, "10+", tag=0)


@struct
class TopicProduceResponse:
    name: str = string("0-12")
    topic_id: UUID = uuid("13+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse, "0+")


@struct
class NodeEndpoint:
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


@message(ApiKey.PRODUCE, versions="0-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = array(TopicProduceResponse, "0+")
    throttle_time_ms: int = int32("1+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
