"""OffsetCommit: save a group's positions. Topics go by id from version 10 on."""

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
class OffsetCommitRequestPartition:
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("6+", default=-1)
    commit_timestamp: int = int64("1", default=-1)
    committed_metadata: str | None = string("0+", nullable="0+")


@struct
class OffsetCommitRequestTopic:
    name: str = string("0-9")
    topic_id: UUID = uuid("10+")
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition, "0+")


@message(ApiKey.OFFSET_COMMIT, versions="0-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", default=-1)
    member_id: str = string("1+")
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, "0+")


@struct
class OffsetCommitResponsePartition:
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@struct
class OffsetCommitResponseTopic:
    name: str = string("0-9")
    topic_id: UUID = uuid("10+")
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition, "0+")


@message(ApiKey.OFFSET_COMMIT, versions="0-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, "0+")
