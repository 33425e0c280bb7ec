"""Fetch: read record batches. Sessions exist from version 7 on, topic ids from 13 on."""

from uuid import UUID

from penstock.model.file_ranges import FileRange
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import (
    array,
    int8,
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
class ReplicaState:
    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


@struct
class FetchPartition:
    partition: int = int32("0+")
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64("0+")
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32("0+")
    replica_directory_id: UUID = uuid("17+", tag=0)
    high_watermark: int = int64("18+", default=2**63 - 1, tag=1)


@struct
class FetchTopic:
    topic: str = string("0-12")
    topic_id: UUID = uuid("13+")
    partitions: list[FetchPartition] = array(FetchPartition, "0+")


@struct
class ForgottenTopic:
    topic: str = string("7-12")
    topic_id: UUID = uuid("13+")
    partitions: list[int] = array(int32, "7+")


@message(ApiKey.FETCH, versions="0-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState | None = nested(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("3+", default=2**31 - 1)
    isolation_level: int = int8("4+")
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic, "0+")
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")


@struct
class EpochEndOffset:
    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


@struct
class SnapshotId:
    end_offset: int = int64("0+", default=-1)
    epoch: int = int32("0+", default=-1)


@struct
class AbortedTransaction:
    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


@struct
class PartitionData:
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    high_watermark: int = int64("0+")
    last_stable_offset: int = int64("4+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: EpochEndOffset | None = nested(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = nested(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, "4+", nullable="4+"
    )
    preferred_read_replica: int = int32("11+", default=-1)
    # A file range only on its way out: see fetch_response.
    records: memoryview | bytes | FileRange | None = records("0+", nullable="0+")


@struct
class FetchableTopicResponse:
    topic: str = string("0-12")
    topic_id: UUID = uuid("13+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


@struct
class NodeEndpoint:
    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+", default=None)


@message(ApiKey.FETCH, versions="0-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
