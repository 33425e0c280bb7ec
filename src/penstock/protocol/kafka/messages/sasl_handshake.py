"""SaslHandshake: which mechanism a client wants to authenticate by. It has no flexible version."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int16, message, string


@message(ApiKey.SASL_HANDSHAKE, versions="0-1", flexible=None)
class SaslHandshakeRequest:
    mechanism: str = string("0+")


@message(ApiKey.SASL_HANDSHAKE, versions="0-1", flexible=None)
class SaslHandshakeResponse:
    error_code: int = int16("0+")
    mechanisms: list[str] = array(string, "0+")
