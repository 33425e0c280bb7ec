"""DescribeCluster: the brokers, the controller and the cluster's id."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.metadata import OPERATIONS_NOT_REQUESTED
from penstock.protocol.kafka.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
)


@message(ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


@struct
class DescribeClusterBroker:
    broker_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+", default=None)
    is_fenced: bool = boolean("2+")


@message(ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, "0+")
    cluster_authorized_operations: int = int32("0+", default=OPERATIONS_NOT_REQUESTED)
