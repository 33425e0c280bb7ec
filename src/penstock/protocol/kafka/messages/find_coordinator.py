"""FindCoordinator: which broker looks after a group; from version 4 on, several at once."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int8, int16, int32, message, string, struct


@message(ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


@struct
class Coordinator:
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+")


@message(ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
