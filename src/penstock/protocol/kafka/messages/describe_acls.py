"""DescribeAcls: the rules that match a filter."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int8, int16, int32, message, string, struct


@message(ApiKey.DESCRIBE_ACLS, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: int = int8("1+")
    resource_name_filter: str | None = string("1+", nullable="1+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("1+", nullable="1+")
    host_filter: str | None = string("1+", nullable="1+")
    operation: int = int8("1+")
    permission_type: int = int8("1+")


@struct
class AclDescription:
    principal: str = string("1+")
    host: str = string("1+")
    operation: int = int8("1+")
    permission_type: int = int8("1+")


@struct
class DescribeAclsResource:
    resource_type: int = int8("1+")
    resource_name: str = string("1+")
    pattern_type: int = int8("1+", default=3)
    acls: list[AclDescription] = array(AclDescription, "1+")


@message(ApiKey.DESCRIBE_ACLS, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("1+")
    error_message: str | None = string("1+", nullable="1+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource, "1+")
