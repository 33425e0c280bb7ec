"""ExpireDelegationToken: gives a token less time, or none."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import bytes_, int16, int32, int64, message


@message(ApiKey.EXPIRE_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: bytes = bytes_("1+")
    expiry_time_period_ms: int = int64("1+")


@message(ApiKey.EXPIRE_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: int = int16("1+")
    expiry_timestamp_ms: int = int64("1+")
    throttle_time_ms: int = int32("1+")
