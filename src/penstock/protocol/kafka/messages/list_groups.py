"""ListGroups: the groups that this broker looks after, filtered by state and type."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int16, int32, message, string, struct


@message(ApiKey.LIST_GROUPS, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


@struct
class ListedGroup:
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+")
    group_type: str = string("5+")


@message(ApiKey.LIST_GROUPS, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
    groups: list[ListedGroup] = array(ListedGroup, "0+")
