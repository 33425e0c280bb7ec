"""ShareAcknowledge, versions 1 and 2: say what became of leased records (KIP-932).

- Each offset is accepted, released, rejected, or said to be a gap; version 2 can also renew its
  lease (KIP-1222), if the request says that it does. All of it, or nothing, is taken for each
  partition, and is durable when the answer leaves.
- The request says the next epoch of the member's share session (`share_fetch`). Epoch -1 closes the
  session and gives all other leases back. No epoch opens one.
- What lies below the first offset that is not done was taken earlier, and is taken again.
- Of a partition that no member of the group has asked for nothing is leased:
  UNKNOWN_TOPIC_OR_PARTITION. Nobody has joined a group whose id is empty.
- A client that asks the wrong broker learns the right one.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import RefusedWith
from penstock.frontdoor.kafka.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareKey
from penstock.frontdoor.kafka.shares import (
    FIRST_RENEWING_VERSION,
    Acknowledging,
    by_topic,
    hint,
    read_claims,
    refusal_of,
    session_key,
)
from penstock.model.errors import Refused
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.share_acknowledge import (
    AcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from penstock.protocol.kafka.messages.share_fetch import ShareLeader


async def handle(call: Call, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    key = session_key(request.group_id, request.member_id)
    shares, epoch = call.connection.shares, request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        detail = "Acknowledgements need a share session."
        raise RefusedWith(ErrorCode.INVALID_SHARE_SESSION_EPOCH, detail)
    if epoch == FINAL_EPOCH:
        shares.sessions.get(key)
    else:
        shares.sessions.step(key, epoch)
    may_renew = call.version >= FIRST_RENEWING_VERSION and request.is_renew_ack
    claims = read_claims(call.services.topics, request.topics, may_renew=may_renew)
    queues = call.services.queues
    acks = Acknowledging(queues, key, claims)
    outcomes = await (shares.end(key, acks) if epoch == FINAL_EPOCH else acks.outcomes())
    parts = {share: _part(share, refused) for share, refused in outcomes.items()}
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=queues.lock_duration_ms(key.group_id),
        node_endpoints=hint(call, parts),
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(parts).items()
        ],
    )


def _part(share: ShareKey, refused: Refused | None) -> AcknowledgePartitionData:
    code, message = refusal_of(refused)
    return AcknowledgePartitionData(
        partition_index=share[1],
        error_code=code,
        error_message=message,
        current_leader=ShareLeader(),
    )


API = Api(
    key=ApiKey.SHARE_ACKNOWLEDGE,
    versions=(1, 2),
    request=ShareAcknowledgeRequest,
    response=ShareAcknowledgeResponse,
    handle=handle,
)
