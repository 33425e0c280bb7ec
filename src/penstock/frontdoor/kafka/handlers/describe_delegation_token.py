"""DescribeDelegationToken, versions 1 to 3: answered with
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as CreateDelegationToken is.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


def handle(call: Call, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return DescribeDelegationTokenResponse(error_code=code)


API = Api(
    key=ApiKey.DESCRIBE_DELEGATION_TOKEN,
    versions=(1, 3),
    request=DescribeDelegationTokenRequest,
    response=DescribeDelegationTokenResponse,
    handle=handle,
)
