"""UnregisterBroker, version 0: forget a broker that is gone for good.

Refused while the broker holds replicas, or runs and is not drained: it has to be drained first,
where Kafka lets it go at once and leaves its partitions with fewer copies.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Refused
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


async def handle(call: Call, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    try:
        await call.services.membership.remove_broker(request.broker_id)
    except Refused as refused:
        code = error_code(refused)
        return UnregisterBrokerResponse(error_code=code, error_message=refused.detail)
    return UnregisterBrokerResponse(error_message=None)


API = Api(
    key=ApiKey.UNREGISTER_BROKER,
    versions=(0, 0),
    request=UnregisterBrokerRequest,
    response=UnregisterBrokerResponse,
    handle=handle,
)
