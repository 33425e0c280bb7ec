"""DescribeCluster, versions 0 to 2: the brokers, the controller and the cluster's id.

Deviations: controllers have no address of their own, so only brokers can be asked for; no broker
is ever fenced.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.operations import ALL_ON_CLUSTER
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2


def handle(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        message = "This is a broker: its controller has no address of its own."
        return _refusal(request, ErrorCode.MISMATCHED_ENDPOINT_TYPE, message)
    if request.endpoint_type != _BROKERS:
        message = f"Unknown endpoint type {request.endpoint_type}."
        return _refusal(request, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, message)
    cluster = call.services.cluster
    rack = cluster.broker_setting("broker.rack") or None
    response = DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker, host=place.host, port=place.port, rack=rack)
            for broker, place in cluster.brokers.items()
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_ON_CLUSTER
    return response


def _refusal(
    request: DescribeClusterRequest, code: ErrorCode, message: str
) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=code, error_message=message, endpoint_type=request.endpoint_type
    )


def _error_response(
    call: Call, request: DescribeClusterRequest, code: ErrorCode
) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code)


API = Api(
    key=ApiKey.DESCRIBE_CLUSTER,
    versions=(0, 2),
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
    handle=handle,
    error_response=_error_response,
)
