"""UnregisterBroker: forget a broker that is gone for good."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import int16, int32, message, string


@message(ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: int = int32("0+")


@message(ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
