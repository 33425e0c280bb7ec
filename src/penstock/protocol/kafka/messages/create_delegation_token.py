"""CreateDelegationToken: a token that stands for a user."""

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
class CreatableRenewers:
    principal_type: str = string("1+")
    principal_name: str = string("1+")


@message(ApiKey.CREATE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers, "1+")
    max_lifetime_ms: int = int64("1+")


@message(ApiKey.CREATE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: int = int16("1+")
    principal_type: str = string("1+")
    principal_name: str = string("1+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64("1+")
    expiry_timestamp_ms: int = int64("1+")
    max_timestamp_ms: int = int64("1+")
    token_id: str = string("1+")
    hmac: bytes = bytes_("1+")
    throttle_time_ms: int = int32("1+")
