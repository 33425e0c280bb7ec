"""ShareGroupDescribe: state, epochs and members of share groups (KIP-932)."""

from uuid import UUID

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.metadata import OPERATIONS_NOT_REQUESTED
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


@message(ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="0+")
class ShareGroupDescribeRequest:
    group_ids: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("0+")


@struct
class DescribedShareTopicPartitions:
    topic_id: UUID = uuid("0+")
    topic_name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


@struct
class DescribedShareAssignment:
    topic_partitions: list[DescribedShareTopicPartitions] = array(
        DescribedShareTopicPartitions, "0+"
    )


@struct
class DescribedShareGroupMember:
    member_id: str = string("0+")
    rack_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(string, "0+")
    assignment: DescribedShareAssignment = nested(DescribedShareAssignment, "0+")


@struct
class DescribedShareGroup:
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    members: list[DescribedShareGroupMember] = array(DescribedShareGroupMember, "0+")
    authorized_operations: int = int32("0+", default=OPERATIONS_NOT_REQUESTED)


@message(ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    throttle_time_ms: int = int32("0+")
    groups: list[DescribedShareGroup] = array(DescribedShareGroup, "0+")
