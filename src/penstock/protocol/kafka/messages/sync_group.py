"""SyncGroup: the leader hands in the assignments, each member gets its own."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, bytes_, int16, int32, message, string, struct


@struct
class SyncGroupRequestAssignment:
    member_id: str = string("0+")
    assignment: bytes = bytes_("0+")


@message(ApiKey.SYNC_GROUP, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, "0+")


@message(ApiKey.SYNC_GROUP, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = bytes_("0+")
