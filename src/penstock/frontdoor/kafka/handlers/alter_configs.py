"""AlterConfigs, versions 0 to 2: replaces all settings of topics and brokers.

A setting that is not named goes back to its default. The changes of one request are one commit; a
refused resource leaves the others alone. New settings act at once.

Broker settings of Kafka that mean nothing here, about Kerberos for one, are kept without effect.

Deviations: broker settings that are unknown are refused, where Kafka keeps them, and so are
passwords and settings of single listeners.
"""

from collections import Counter

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.config_resources import change_all
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Reason, Refused
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    answers = await change_all(
        request.resources,
        _settings,
        lambda changes: call.services.configs.replace(changes, validate_only=request.validate_only),
    )
    responses = [
        _response(asked, answer) for asked, answer in zip(request.resources, answers, strict=True)
    ]
    return AlterConfigsResponse(responses=responses)


def _settings(resource: AlterConfigsResource) -> dict[str, str | None]:
    times = Counter(config.name for config in resource.configs)
    if any(count > 1 for count in times.values()):
        raise Refused(Reason.INVALID_REQUEST, "A configuration key is given more than once.")
    return {config.name: config.value for config in resource.configs}


def _response(asked: AlterConfigsResource, refused: Refused | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=0 if refused is None else error_code(refused),
        error_message=None if refused is None else refused.detail,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )


API = Api(
    key=ApiKey.ALTER_CONFIGS,
    versions=(0, 2),
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
    handle=handle,
)
