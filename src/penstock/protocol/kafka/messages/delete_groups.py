"""DeleteGroups: forget empty groups and their committed offsets."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int16, int32, message, string, struct


@message(ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = array(string, "0+")


@struct
class DeletableGroupResult:
    group_id: str = string("0+")
    error_code: int = int16("0+")


@message(ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")
