"""LeaveGroup: members go; from version 3 on, several at once, named by an administrator too."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int16, int32, message, string, struct


@struct
class MemberIdentity:
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None)


@message(ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


@struct
class MemberResponse:
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


@message(ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
    members: list[MemberResponse] = array(MemberResponse, "3+")
