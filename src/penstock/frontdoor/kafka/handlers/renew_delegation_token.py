"""RenewDelegationToken, versions 1 and 2: answered with
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as CreateDelegationToken is.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

_NEVER = -1


def handle(call: Call, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    return refuse(call, request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def refuse(
    call: Call, request: RenewDelegationTokenRequest, code: ErrorCode
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=_NEVER)


API = Api(
    key=ApiKey.RENEW_DELEGATION_TOKEN,
    versions=(1, 2),
    request=RenewDelegationTokenRequest,
    response=RenewDelegationTokenResponse,
    handle=handle,
    refuse=refuse,
)
