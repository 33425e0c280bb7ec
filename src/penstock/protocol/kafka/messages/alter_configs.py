"""AlterConfigs: replace all settings of a resource."""

from penstock.protocol.kafka.api_keys import ApiKey
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


@struct
class AlterableConfig:
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@struct
class AlterConfigsResource:
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


@message(ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


@struct
class AlterConfigsResourceResponse:
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


@message(ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")
