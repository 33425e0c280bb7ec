"""ShareAcknowledge: what became of leased records (KIP-932). Version 2 can renew (KIP-1222)."""

from uuid import UUID

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.share_fetch import (
    AcknowledgementBatch,
    ShareLeader,
    ShareNodeEndpoint,
)
from penstock.protocol.kafka.schema import (
    array,
    boolean,
    int16,
    int32,
    message,
    nested,
    string,
    struct,
    uuid,
)


@struct
class AcknowledgePartition:
    partition_index: int = int32("0+")
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch, "0+")


@struct
class AcknowledgeTopic:
    topic_id: UUID = uuid("0+")
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition, "0+")


@message(ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+")
    share_session_epoch: int = int32("0+")
    is_renew_ack: bool = boolean("2+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic, "0+")


@struct
class AcknowledgePartitionData:
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    current_leader: ShareLeader = nested(ShareLeader, "0+")


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: UUID = uuid("0+")
    partitions: list[AcknowledgePartitionData] = array(AcknowledgePartitionData, "0+")


@message(ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+")
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse, "0+")
    node_endpoints: list[ShareNodeEndpoint] = array(ShareNodeEndpoint, "0+")
