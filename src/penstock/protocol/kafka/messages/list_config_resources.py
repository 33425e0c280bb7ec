"""ListConfigResources: the resources of some types that have settings."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int8, int16, int32, message, string, struct


@message(ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    # None asks for all types.
    resource_types: list[int] = array(int8, "1+")


@struct
class ConfigResource:
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=16)


@message(ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ConfigResource] = array(ConfigResource, "0+")
