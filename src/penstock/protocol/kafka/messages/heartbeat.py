"""Heartbeat: a member is alive, and learns whether its group rebalances."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import int16, int32, message, string


@message(ApiKey.HEARTBEAT, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@message(ApiKey.HEARTBEAT, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
