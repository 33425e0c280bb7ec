"""ShareGroupHeartbeat: a member of a share group joins, lives and leaves (KIP-932).

A field of the request that is null has not changed since the last heartbeat. Version 0 was a
preview that nobody speaks any more.
"""

from typing import Final
from uuid import UUID

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import (
    array,
    int16,
    int32,
    message,
    nested,
    string,
    struct,
    uuid,
)

# What a member epoch says when it is not the member's own.
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1


@message(ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    rack_id: str | None = string("0+", nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, "0+", nullable="0+", default=None)


@struct
class ShareHeartbeatTopicPartitions:
    topic_id: UUID = uuid("0+")
    partitions: list[int] = array(int32, "0+")


@struct
class ShareHeartbeatAssignment:
    topic_partitions: list[ShareHeartbeatTopicPartitions] = array(
        ShareHeartbeatTopicPartitions, "0+"
    )


@message(ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: ShareHeartbeatAssignment | None = nested(
        ShareHeartbeatAssignment, "0+", nullable="0+"
    )
