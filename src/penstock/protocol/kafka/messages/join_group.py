"""JoinGroup: a consumer enters a group and waits for the others."""

from penstock.protocol.kafka.api_keys import ApiKey
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


@struct
class JoinGroupRequestProtocol:
    name: str = string("0+")
    metadata: bytes = bytes_("0+")


@message(ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", nullable="8+", default=None)


@struct
class JoinGroupResponseMember:
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    metadata: bytes = bytes_("0+")


@message(ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int = int32("2+")
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, "0+")
