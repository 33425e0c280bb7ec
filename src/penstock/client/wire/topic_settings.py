"""The one setting of a topic that a writer of batches must know."""

from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.client.wire.cluster_map import ClusterMap
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

MESSAGE_BYTES_MAX = "max.message.bytes"
_TOPIC = 2


def message_bytes_max(cluster_map: ClusterMap, topic: str) -> int | None:
    """How large a batch the topic takes; None if the broker does not say."""
    resource = DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=topic, configuration_keys=[MESSAGE_BYTES_MAX]
    )
    try:
        answer = cluster_map.ask_any(
            DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse
        )
    except BrokerUnreachable:
        raise
    except ClientError:
        # The call is not offered everywhere, and its answer only helps.
        return None
    values = [
        setting.value
        for one in answer.results
        if one.error_code == ErrorCode.NONE
        for setting in one.configs
        if setting.name == MESSAGE_BYTES_MAX
    ]
    value = values[0] if values else None
    return int(value) if value is not None and value.isdecimal() else None
