"""OffsetFetch: a group's saved positions; from version 8 on, of several groups at once."""

from uuid import UUID

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import (
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uuid,
)


@struct
class OffsetFetchRequestTopic:
    name: str = string("0-7")
    partition_indexes: list[int] = array(int32, "0-7")


@struct
class OffsetFetchRequestTopics:
    name: str = string("8-9")
    topic_id: UUID = uuid("10+")
    partition_indexes: list[int] = array(int32, "8+")


@struct
class OffsetFetchRequestGroup:
    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable="9+", default=None)
    member_epoch: int = int32("9+", default=-1)
    # Null asks for every topic of the group.
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, "8+", nullable="8+"
    )


@message(ApiKey.OFFSET_FETCH, versions="0-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


@struct
class OffsetFetchResponsePartition:
    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")


@struct
class OffsetFetchResponseTopic:
    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


@struct
class OffsetFetchResponsePartitions:
    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


@struct
class OffsetFetchResponseTopics:
    name: str = string("8-9")
    topic_id: UUID = uuid("10+")
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


@struct
class OffsetFetchResponseGroup:
    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


@message(ApiKey.OFFSET_FETCH, versions="0-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
