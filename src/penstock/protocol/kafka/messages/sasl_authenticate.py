"""SaslAuthenticate: one step of a mechanism."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import bytes_, int16, int64, message, string


@message(ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: bytes = bytes_("0+")


@message(ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = bytes_("0+")
    session_lifetime_ms: int = int64("1+")
