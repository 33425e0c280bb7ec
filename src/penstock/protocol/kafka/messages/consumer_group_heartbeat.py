"""ConsumerGroupHeartbeat: a member of a group of the new protocol joins, reports, leaves (KIP-848).

A field of the request that is null, or a time of -1, has not changed since the last heartbeat.
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
# A static member leaves and will come back.
LEAVE_FOR_NOW_EPOCH: Final = -2


@struct
class HeartbeatTopicPartitions:
    topic_id: UUID = uuid("0+")
    partitions: list[int] = array(int32, "0+")


@message(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    subscribed_topic_names: list[str] | None = array(string, "0+", nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string("0+", nullable="0+", default=None)
    # Has to be given: an empty list says that the member owns nothing.
    topic_partitions: list[HeartbeatTopicPartitions] | None = array(
        HeartbeatTopicPartitions, "0+", nullable="0+"
    )


@struct
class HeartbeatAssignment:
    topic_partitions: list[HeartbeatTopicPartitions] = array(HeartbeatTopicPartitions, "0+")


@message(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: HeartbeatAssignment | None = nested(HeartbeatAssignment, "0+", nullable="0+")
