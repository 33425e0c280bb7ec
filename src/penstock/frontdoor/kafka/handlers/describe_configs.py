"""DescribeConfigs, versions 0 to 4: all settings of topics, brokers, groups and subscriptions to
clients' metrics, or the named ones.

Each comes with its value, where the value comes from, the other places that were looked at
(synonyms), its type and what it means. The broker with the empty name means all brokers and
shows only what was set for all of them at run time.

Deviations: log levels have no settings here and are refused; groups have only the settings of
consumer and share groups; where a broker setting decides a topic's value, the source is shown even
if it is in another unit.
"""

from penstock.broker.configs import ConfigEntry, ConfigSource
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.config_resources import resource_of
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Refused
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = [_result(call, request, resource) for resource in request.resources]
    return DescribeConfigsResponse(results=results)


def _result(
    call: Call, request: DescribeConfigsRequest, asked: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        resource = resource_of(asked)
        entries = call.services.configs.describe(resource, asked.configuration_keys)
    except Refused as refused:
        return DescribeConfigsResult(
            error_code=error_code(refused),
            error_message=refused.detail,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )
    return DescribeConfigsResult(
        error_code=0,
        error_message=None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[_config(request, entry) for entry in entries],
    )


def _config(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        is_default=entry.source == ConfigSource.DEFAULT,
        config_source=entry.source,
        is_sensitive=False,
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in entry.synonyms
        ]
    return result


API = Api(
    key=ApiKey.DESCRIBE_CONFIGS,
    versions=(0, 4),
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
    handle=handle,
)
