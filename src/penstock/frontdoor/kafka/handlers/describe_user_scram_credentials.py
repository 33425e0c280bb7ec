"""DescribeUserScramCredentials, version 0: no user has any.

A user who is asked for by name is RESOURCE_NOT_FOUND, one named twice DUPLICATE_RESOURCE.
Deviation: credentials can't be made here, so AlterUserScramCredentials is not served.
"""

from collections import Counter

from penstock.frontdoor.kafka.api import Api, Call
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(
    call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    times = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        results=[_result(name, count) for name, count in times.items()]
    )


def _result(name: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        said = "Cannot describe SCRAM credentials for the same user twice in a single request:"
    else:
        code = ErrorCode.RESOURCE_NOT_FOUND
        said = "Attempt to describe a user credential that does not exist:"
    return DescribeUserScramCredentialsResult(
        user=name, error_code=code, error_message=f"{said} {name}"
    )


API = Api(
    key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    request=DescribeUserScramCredentialsRequest,
    response=DescribeUserScramCredentialsResponse,
    handle=handle,
)
