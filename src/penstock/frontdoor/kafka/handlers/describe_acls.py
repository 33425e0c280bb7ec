"""DescribeAcls, versions 1 to 3: answered with SECURITY_DISABLED.

There are no rules for who may do what: the answer is that of a Kafka without an authorizer.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle(call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No Authorizer is configured on the broker",
    )


API = Api(
    key=ApiKey.DESCRIBE_ACLS,
    versions=(1, 3),
    request=DescribeAclsRequest,
    response=DescribeAclsResponse,
    handle=handle,
)
