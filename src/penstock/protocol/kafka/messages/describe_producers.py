"""DescribeProducers: the producers that a partition remembers."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int16, int32, int64, message, string, struct


@struct
class TopicRequest:
    name: str = string("0+")
    partition_indexes: list[int] = array(int32, "0+")


@message(ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: list[TopicRequest] = array(TopicRequest, "0+")


@struct
class ProducerState:
    producer_id: int = int64("0+")
    producer_epoch: int = int32("0+")
    last_sequence: int = int32("0+", default=-1)
    last_timestamp: int = int64("0+", default=-1)
    coordinator_epoch: int = int32("0+")
    current_txn_start_offset: int = int64("0+", default=-1)


@struct
class PartitionResponse:
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    active_producers: list[ProducerState] = array(ProducerState, "0+")


@struct
class TopicResponse:
    name: str = string("0+")
    partitions: list[PartitionResponse] = array(PartitionResponse, "0+")


@message(ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: int = int32("0+")
    topics: list[TopicResponse] = array(TopicResponse, "0+")
