"""CreateAcls, versions 1 to 3: answered with SECURITY_DISABLED.

There are no rules for who may do what: the answer is that of a Kafka without an authorizer.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def handle(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    return _all(request, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def _all(request: CreateAclsRequest, code: ErrorCode, message: str | None) -> CreateAclsResponse:
    result = AclCreationResult(error_code=code, error_message=message)
    return CreateAclsResponse(results=[result] * len(request.creations))


def refuse(call: Call, request: CreateAclsRequest, code: ErrorCode) -> CreateAclsResponse:
    return _all(request, code, None)


API = Api(
    key=ApiKey.CREATE_ACLS,
    versions=(1, 3),
    request=CreateAclsRequest,
    response=CreateAclsResponse,
    handle=handle,
    refuse=refuse,
)
