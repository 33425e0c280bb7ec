"""ConsumerGroupDescribe: state, epochs and members of groups of the new protocol (KIP-848)."""

from typing import Final
from uuid import UUID

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.metadata import OPERATIONS_NOT_REQUESTED
from penstock.protocol.kafka.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    nested,
    string,
    struct,
    uuid,
)

# The protocol that a member speaks.
MEMBER_TYPE_UNKNOWN: Final = -1
MEMBER_TYPE_CLASSIC: Final = 0
MEMBER_TYPE_CONSUMER: Final = 1


@message(ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("0+")


@struct
class DescribedTopicPartitions:
    topic_id: UUID = uuid("0+")
    topic_name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


@struct
class DescribedAssignment:
    topic_partitions: list[DescribedTopicPartitions] = array(DescribedTopicPartitions, "0+")


@struct
class DescribedConsumerGroupMember:
    member_id: str = string("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(string, "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+", default=None)
    assignment: DescribedAssignment = nested(DescribedAssignment, "0+")
    target_assignment: DescribedAssignment = nested(DescribedAssignment, "0+")
    member_type: int = int8("1+", default=MEMBER_TYPE_UNKNOWN)


@struct
class DescribedConsumerGroup:
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    members: list[DescribedConsumerGroupMember] = array(DescribedConsumerGroupMember, "0+")
    authorized_operations: int = int32("0+", default=OPERATIONS_NOT_REQUESTED)


@message(ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = int32("0+")
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup, "0+")
