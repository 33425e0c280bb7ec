"""RenewDelegationToken: gives a token more time."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import bytes_, int16, int32, int64, message


@message(ApiKey.RENEW_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: bytes = bytes_("1+")
    renew_period_ms: int = int64("1+")


@message(ApiKey.RENEW_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: int = int16("1+")
    expiry_timestamp_ms: int = int64("1+")
    throttle_time_ms: int = int32("1+")
