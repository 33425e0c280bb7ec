"""DeleteAcls: takes away the rules that match filters."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int8, int16, int32, message, string, struct


@struct
class DeleteAclsFilter:
    resource_type_filter: int = int8("1+")
    resource_name_filter: str | None = string("1+", nullable="1+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("1+", nullable="1+")
    host_filter: str | None = string("1+", nullable="1+")
    operation: int = int8("1+")
    permission_type: int = int8("1+")


@message(ApiKey.DELETE_ACLS, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter, "1+")


@struct
class DeleteAclsMatchingAcl:
    error_code: int = int16("1+")
    error_message: str | None = string("1+", nullable="1+")
    resource_type: int = int8("1+")
    resource_name: str = string("1+")
    pattern_type: int = int8("1+", default=3)
    principal: str = string("1+")
    host: str = string("1+")
    operation: int = int8("1+")
    permission_type: int = int8("1+")


@struct
class DeleteAclsFilterResult:
    error_code: int = int16("1+")
    error_message: str | None = string("1+", nullable="1+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl, "1+")


@message(ApiKey.DELETE_ACLS, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: int = int32("1+")
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult, "1+")
