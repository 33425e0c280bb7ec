"""DescribeCluster, versions 0 to 2: the brokers, the controller and the cluster's id.

From version 2 on, brokers that can't be reached are also listed if asked for, as fenced.

Deviations: controllers have no address of their own, so only brokers can be asked for.
"""

from penstock.broker.leaderships import Broker
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
        message = "This is a broker: its controller does not have a separate address."
        return _refusal(request, ErrorCode.MISMATCHED_ENDPOINT_TYPE, message)
    if request.endpoint_type != _BROKERS:
        message = f"Unknown endpoint type {request.endpoint_type}."
        return _refusal(request, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, message)
    leaderships = call.services.leaderships
    brokers = [
        _broker(broker, is_fenced=not is_alive)
        for broker, is_alive in leaderships.all_brokers()
        if is_alive or request.include_fenced_brokers
    ]
    response = DescribeClusterResponse(
        cluster_id=leaderships.cluster_id,
        controller_id=leaderships.admin_broker(),
        brokers=brokers,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_ON_CLUSTER
    return response


def _broker(broker: Broker, *, is_fenced: bool) -> DescribeClusterBroker:
    return DescribeClusterBroker(
        broker_id=broker.id,
        host=broker.kafka.host,
        port=broker.kafka.port,
        rack=broker.rack,
        is_fenced=is_fenced,
    )


def _refusal(
    request: DescribeClusterRequest, code: ErrorCode, message: str
) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=code, error_message=message, endpoint_type=request.endpoint_type
    )


API = Api(
    key=ApiKey.DESCRIBE_CLUSTER,
    versions=(0, 2),
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
    handle=handle,
)
