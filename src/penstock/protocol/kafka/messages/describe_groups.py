"""DescribeGroups: state and members of groups."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.metadata import OPERATIONS_NOT_REQUESTED
from penstock.protocol.kafka.schema import (
    array,
    boolean,
    bytes_,
    int16,
    int32,
    message,
    string,
    struct,
)


@message(ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("3+")


@struct
class DescribedGroupMember:
    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", nullable="4+", default=None)
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: bytes = bytes_("0+")
    member_assignment: bytes = bytes_("0+")


@struct
class DescribedGroup:
    error_code: int = int16("0+")
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", default=OPERATIONS_NOT_REQUESTED)


@message(ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")
