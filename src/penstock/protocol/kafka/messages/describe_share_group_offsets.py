"""DescribeShareGroupOffsets: how far share groups are. Version 1 has the lag (KIP-1226)."""

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
    uuid,
)


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = string("0+")
    # None: all topics of the group.
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, "0+", nullable="0+"
    )


@message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(
        DescribeShareGroupOffsetsRequestGroup, "0+"
    )


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = int32("0+")
    start_offset: int = int64("0+")
    leader_epoch: int = int32("0+")
    lag: int = int64("1+", default=-1)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    # Ours, about dead letters and for operators. Other clients skip these; other brokers do not
    # send them.
    dying_count: int = int64("0+", tag=10_000)
    dead_letters_sent: int = int64("0+", tag=10_001)
    dead_letters_redriven: int = int64("0+", tag=10_002)
    dead_letters_trouble: str = string("0+", tag=10_003)
    note: str = string("0+", tag=10_004)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = string("0+")
    topic_id: UUID = uuid("0+")
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition, "0+"
    )


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = string("0+")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(
        DescribeShareGroupOffsetsResponseTopic, "0+"
    )
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


@message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int = int32("0+")
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(
        DescribeShareGroupOffsetsResponseGroup, "0+"
    )
