"""ExpireDelegationToken, versions 1 and 2: answered with
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as CreateDelegationToken is.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

_NEVER = -1


def handle(call: Call, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    return refuse(call, request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def refuse(
    call: Call, request: ExpireDelegationTokenRequest, code: ErrorCode
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=_NEVER)


API = Api(
    key=ApiKey.EXPIRE_DELEGATION_TOKEN,
    versions=(1, 2),
    request=ExpireDelegationTokenRequest,
    response=ExpireDelegationTokenResponse,
    handle=handle,
    refuse=refuse,
)
