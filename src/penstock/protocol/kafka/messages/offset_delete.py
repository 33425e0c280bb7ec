"""OffsetDelete: forget committed offsets of some partitions. It has no flexible version."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int16, int32, message, string, struct


@struct
class OffsetDeleteRequestPartition:
    partition_index: int = int32("0+")


@struct
class OffsetDeleteRequestTopic:
    name: str = string("0+")
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition, "0+")


@message(ApiKey.OFFSET_DELETE, versions="0", flexible=None)
class OffsetDeleteRequest:
    group_id: str = string("0+")
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, "0+")


@struct
class OffsetDeleteResponsePartition:
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@struct
class OffsetDeleteResponseTopic:
    name: str = string("0+")
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition, "0+")


@message(ApiKey.OFFSET_DELETE, versions="0", flexible=None)
class OffsetDeleteResponse:
    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+")
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, "0+")
