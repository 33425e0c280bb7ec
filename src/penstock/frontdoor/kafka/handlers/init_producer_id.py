"""InitProducerId, versions 0 to 6: an id for an idempotent producer.

Without a transactional id a producer always gets a new id with epoch 0, as from Kafka, whatever id
it had. A transactional id is refused, since there are no transactions yet; the code for it ends a
transactional producer with an error instead of letting it try forever. A broker that has no ids
and has lost its cluster ends the connection: another one may have some.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.isolation import check_contact
from penstock.model.errors import Reason, Refused
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

NONE = -1


async def handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        raise Refused(Reason.INVALID_REQUEST, "a producer's id and epoch belong together")
    try:
        producer_id, epoch = await call.services.producers.identify(request.transactional_id)
    except Refused as refused:
        if refused.reason is Reason.COORDINATOR_LOAD_IN_PROGRESS:
            check_contact(call)
        raise
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


API = Api(
    key=ApiKey.INIT_PRODUCER_ID,
    versions=(0, 6),
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
    handle=handle,
)
