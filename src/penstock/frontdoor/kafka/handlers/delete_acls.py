"""DeleteAcls, versions 1 to 3: answered with SECURITY_DISABLED.

There are no rules for who may do what: the answer is that of a Kafka without an authorizer.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def handle(call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    return _all(request, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def _all(request: DeleteAclsRequest, code: ErrorCode, message: str | None) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=code, error_message=message)
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))


def refuse(call: Call, request: DeleteAclsRequest, code: ErrorCode) -> DeleteAclsResponse:
    return _all(request, code, None)


API = Api(
    key=ApiKey.DELETE_ACLS,
    versions=(1, 3),
    request=DeleteAclsRequest,
    response=DeleteAclsResponse,
    handle=handle,
    refuse=refuse,
)
