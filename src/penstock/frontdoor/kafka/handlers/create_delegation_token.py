"""CreateDelegationToken, versions 1 to 3: answered with
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

A token belongs to a user who has authenticated, and a PLAINTEXT listener authenticates nobody.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

# As whom Kafka sees everybody who does not authenticate.
_USER, _ANONYMOUS = "User", "ANONYMOUS"
_NEVER = -1


def handle(call: Call, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    return refuse(call, request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def refuse(
    call: Call, request: CreateDelegationTokenRequest, code: ErrorCode
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=request.owner_principal_type or _USER,
        principal_name=request.owner_principal_name or _ANONYMOUS,
        token_requester_principal_type=_USER,
        token_requester_principal_name=_ANONYMOUS,
        issue_timestamp_ms=_NEVER,
        expiry_timestamp_ms=_NEVER,
        max_timestamp_ms=_NEVER,
    )


API = Api(
    key=ApiKey.CREATE_DELEGATION_TOKEN,
    versions=(1, 3),
    request=CreateDelegationTokenRequest,
    response=CreateDelegationTokenResponse,
    handle=handle,
    refuse=refuse,
)
