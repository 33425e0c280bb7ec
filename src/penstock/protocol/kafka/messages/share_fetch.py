"""ShareFetch: lease records of queues and read them (KIP-932).

Version 2 has ways to lease (KIP-1206) and acknowledgements that renew a lease (KIP-1222). Version 0
was never stable.
"""

from typing import Final
from uuid import UUID

from penstock.model.file_ranges import FileRange
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import (
    array,
    boolean,
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

# share_acquire_mode
BATCH_OPTIMIZED: Final = 0
RECORD_LIMIT: Final = 1


@struct
class AcknowledgementBatch:
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    acknowledge_types: list[int] = array(int8, "0+")


@struct
class ShareFetchPartition:
    partition_index: int = int32("0+")
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch, "0+")


@struct
class ShareFetchTopic:
    topic_id: UUID = uuid("0+")
    partitions: list[ShareFetchPartition] = array(ShareFetchPartition, "0+")


@struct
class ShareForgottenTopic:
    topic_id: UUID = uuid("0+")
    partitions: list[int] = array(int32, "0+")


@message(ApiKey.SHARE_FETCH, versions="1-2", flexible="0+")
class ShareFetchRequest:
    group_id: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+")
    share_session_epoch: int = int32("0+")
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("0+", default=2**31 - 1)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+")
    is_renew_ack: bool = boolean("2+")
    topics: list[ShareFetchTopic] = array(ShareFetchTopic, "0+")
    forgotten_topics_data: list[ShareForgottenTopic] = array(ShareForgottenTopic, "0+")


@struct
class ShareLeader:
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


@struct
class AcquiredRecords:
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_count: int = int16("0+")


@struct
class ShareFetchPartitionData:
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acknowledge_error_code: int = int16("0+")
    acknowledge_error_message: str | None = string("0+", nullable="0+", default=None)
    current_leader: ShareLeader = nested(ShareLeader, "0+")
    # A file range only on its way out: see fetch_bytes.
    records: memoryview | bytes | FileRange | None = records("0+")
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords, "0+")


@struct
class ShareFetchableTopicResponse:
    topic_id: UUID = uuid("0+")
    partitions: list[ShareFetchPartitionData] = array(ShareFetchPartitionData, "0+")


@struct
class ShareNodeEndpoint:
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+", default=None)


@message(ApiKey.SHARE_FETCH, versions="1-2", flexible="0+")
class ShareFetchResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse, "0+")
    node_endpoints: list[ShareNodeEndpoint] = array(ShareNodeEndpoint, "0+")
