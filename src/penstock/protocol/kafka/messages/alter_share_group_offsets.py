"""AlterShareGroupOffsets: let an empty share group go on from other offsets."""

from uuid import UUID

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import (
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    nested,
    string,
    struct,
    uuid,
)


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int = int32("0+")
    start_offset: int = int64("0+")


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = string("0+")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(
        AlterShareGroupOffsetsRequestPartition, "0+"
    )


@message(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    group_id: str = string("0+")
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(
        AlterShareGroupOffsetsRequestTopic, "0+"
    )
    # Ours: brings dead letters of this topic back, and alters no offsets. Other brokers skip it.
    redriven_topic: str = string("0+", tag=10_000)
    redriven_max: int = int64("0+", tag=10_001)


@struct
class RedrivenLetters:
    reopened: int = int64("0+")
    copied: int = int64("0+")
    skipped: int = int64("0+")
    is_finished: bool = boolean("0+")


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = string("0+")
    topic_id: UUID = uuid("0+")
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(
        AlterShareGroupOffsetsResponsePartition, "0+"
    )


@message(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(
        AlterShareGroupOffsetsResponseTopic, "0+"
    )
    # Ours: what became of dead letters that were to be brought back.
    redriven: RedrivenLetters | None = nested(RedrivenLetters, "0+", tag=10_000)
