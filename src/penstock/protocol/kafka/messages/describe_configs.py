"""DescribeConfigs: settings of topics and brokers, with sources and synonyms."""

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
class DescribeConfigsResource:
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    # Null asks for every setting.
    configuration_keys: list[str] | None = array(string, "0+", nullable="0+")


@message(ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource, "0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


@struct
class DescribeConfigsSynonym:
    name: str = string("1+")
    value: str | None = string("1+", nullable="1+")
    source: int = int8("1+")


@struct
class DescribeConfigsResourceResult:
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")
    read_only: bool = boolean("0+")
    is_default: bool = boolean("0")
    config_source: int = int8("1+", default=-1)
    is_sensitive: bool = boolean("0+")
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+")
    config_type: int = int8("3+")
    documentation: str | None = string("3+", nullable="3+")


@struct
class DescribeConfigsResult:
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult, "0+")


@message(ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: int = int32("0+")
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, "0+")
