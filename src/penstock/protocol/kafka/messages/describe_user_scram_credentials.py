"""DescribeUserScramCredentials: by which mechanisms users may authenticate."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int8, int16, int32, message, string, struct


@struct
class UserName:
    name: str = string("0+")


@message(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    # Null asks for all users.
    users: list[UserName] | None = array(UserName, "0+", nullable="0+")


@struct
class CredentialInfo:
    mechanism: int = int8("0+")
    iterations: int = int32("0+")


@struct
class DescribeUserScramCredentialsResult:
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo, "0+")


@message(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(
        DescribeUserScramCredentialsResult, "0+"
    )
