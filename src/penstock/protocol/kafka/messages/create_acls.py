"""CreateAcls: new rules for who may do what."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int8, int16, int32, message, string, struct


@struct
class AclCreation:
    resource_type: int = int8("1+")
    resource_name: str = string("1+")
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string("1+")
    host: str = string("1+")
    operation: int = int8("1+")
    permission_type: int = int8("1+")


@message(ApiKey.CREATE_ACLS, versions="1-3", flexible="2+")
class CreateAclsRequest:
    creations: list[AclCreation] = array(AclCreation, "1+")


@struct
class AclCreationResult:
    error_code: int = int16("1+")
    error_message: str | None = string("1+", nullable="1+")


@message(ApiKey.CREATE_ACLS, versions="1-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: int = int32("1+")
    results: list[AclCreationResult] = array(AclCreationResult, "1+")
