"""ListConfigResources, versions 0 and 1: topics, brokers, their loggers, subscriptions
and groups.

Version 0 asks for subscriptions to clients' metrics, version 1 for some types, or for all. Of
groups, those with settings of their own are listed. A type that does not exist is
UNSUPPORTED_VERSION.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.config_resources import ResourceType
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_CLIENT_METRICS_ONLY_VERSION = 0


def handle(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    wanted = set(request.resource_types) or set(ResourceType)
    if call.version == _CLIENT_METRICS_ONLY_VERSION:
        wanted = {ResourceType.CLIENT_METRICS}
    if not wanted <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(wanted)
            for name in _names(call, kind)
        ]
    )


def _names(call: Call, kind: int) -> list[str]:
    services = call.services
    if kind == ResourceType.TOPIC:
        return [topic.name for topic in services.topics.all()]
    if kind == ResourceType.CLIENT_METRICS:
        return services.client_metrics.subscriptions()
    if kind == ResourceType.GROUP:
        return services.configs.groups()
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker.id) for broker in services.leaderships.brokers(call.now)]
    return []


API = Api(
    key=ApiKey.LIST_CONFIG_RESOURCES,
    versions=(0, 1),
    request=ListConfigResourcesRequest,
    response=ListConfigResourcesResponse,
    handle=handle,
)
