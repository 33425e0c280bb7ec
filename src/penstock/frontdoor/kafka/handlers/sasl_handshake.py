"""SaslHandshake, versions 0 and 1: answered with ILLEGAL_SASL_STATE.

Connections to this listener are not authenticated. A client that is set to authenticate learns at
once that this is a PLAINTEXT listener, as from Kafka.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


def handle(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


API = Api(
    key=ApiKey.SASL_HANDSHAKE,
    versions=(0, 1),
    request=SaslHandshakeRequest,
    response=SaslHandshakeResponse,
    handle=handle,
)
