"""DescribeDelegationToken: the tokens of some users, or all."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import (
    array,
    bytes_,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
)


@struct
class DescribeDelegationTokenOwner:
    principal_type: str = string("1+")
    principal_name: str = string("1+")


@message(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    # Null asks for all tokens.
    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, "1+", nullable="1+"
    )


@struct
class DescribedDelegationTokenRenewer:
    principal_type: str = string("1+")
    principal_name: str = string("1+")


@struct
class DescribedDelegationToken:
    principal_type: str = string("1+")
    principal_name: str = string("1+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64("1+")
    expiry_timestamp: int = int64("1+")
    max_timestamp: int = int64("1+")
    token_id: str = string("1+")
    hmac: bytes = bytes_("1+")
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer, "1+")


@message(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: int = int16("1+")
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken, "1+")
    throttle_time_ms: int = int32("1+")
