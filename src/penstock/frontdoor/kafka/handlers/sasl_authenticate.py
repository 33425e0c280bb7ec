"""SaslAuthenticate, versions 0 to 2: answered with ILLEGAL_SASL_STATE, as SaslHandshake is."""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

# Kafka's own words for a listener without authentication.
_MESSAGE = "SaslAuthenticate request received after successful authentication"


def handle(call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_MESSAGE)


API = Api(
    key=ApiKey.SASL_AUTHENTICATE,
    versions=(0, 2),
    request=SaslAuthenticateRequest,
    response=SaslAuthenticateResponse,
    handle=handle,
)
