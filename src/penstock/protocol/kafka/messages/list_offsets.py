"""ListOffsets: the offset at an end of a partition or at a time. Version 0 lists several."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int8, int16, int32, int64, message, string, struct


@struct
class ListOffsetsPartition:
    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64("0+")
    max_num_offsets: int = int32("0", default=1)


@struct
class ListOffsetsTopic:
    name: str = string("0+")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, "0+")


@message(ApiKey.LIST_OFFSETS, versions="0-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: int = int32("0+")
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+")


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    old_style_offsets: list[int] = array(int64, "0")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = string("0+")
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, "0+")


@message(ApiKey.LIST_OFFSETS, versions="0-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0+")
