"""OffsetForLeaderEpoch: where a leader epoch ends, so that clients notice truncation."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int16, int32, int64, message, string, struct


@struct
class OffsetForLeaderPartition:
    partition: int = int32("0+")
    current_leader_epoch: int = int32("2+", default=-1)
    leader_epoch: int = int32("0+")


@struct
class OffsetForLeaderTopic:
    topic: str = string("0+")
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition, "0+")


@message(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, "0+")


@struct
class EpochEndOffset:
    error_code: int = int16("0+")
    partition: int = int32("0+")
    leader_epoch: int = int32("1+", default=-1)
    end_offset: int = int64("0+", default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str = string("0+")
    partitions: list[EpochEndOffset] = array(EpochEndOffset, "0+")


@message(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = int32("2+")
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, "0+")
