"""IncrementalAlterConfigs, versions 0 and 1: sets, deletes, extends or shortens single settings.

Append and subtract work on lists only, from the value that acts now. The changes of one request
are one commit; a refused resource leaves the others alone. New settings act at once.

Broker settings of Kafka that mean nothing here, about Kerberos for one, are kept without effect.

Deviations: broker settings that are unknown are refused, where Kafka keeps them, and so are
passwords and settings of single listeners. The patterns of a subscription to clients' metrics are
Python's, and those that could take long to match are refused.
"""

from penstock.broker.configs import Edit, Operation
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.config_resources import change_all
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Reason, Refused
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_OPERATIONS = {operation.value: operation for operation in Operation}


async def handle(
    call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    answers = await change_all(
        request.resources,
        lambda resource: [_edit(config) for config in resource.configs],
        lambda changes: call.services.configs.edit(changes, validate_only=request.validate_only),
    )
    responses = [
        _response(asked, answer) for asked, answer in zip(request.resources, answers, strict=True)
    ]
    return IncrementalAlterConfigsResponse(responses=responses)


def _edit(config: AlterableConfig) -> Edit:
    operation = _OPERATIONS.get(config.config_operation)
    if operation is None:
        detail = f"Unknown operation {config.config_operation} on configuration {config.name}."
        raise Refused(Reason.INVALID_REQUEST, detail)
    return Edit(config.name, operation, config.value)


def _response(asked: AlterConfigsResource, refused: Refused | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=0 if refused is None else error_code(refused),
        error_message=None if refused is None else refused.detail,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )


API = Api(
    key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
    versions=(0, 1),
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
    handle=handle,
)
