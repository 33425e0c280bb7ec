"""FindCoordinator, versions 0 to 6: which broker to ask about a group.

- Groups: the leader of the group's partition of __consumer_offsets, or COORDINATOR_NOT_AVAILABLE
  while it has none. The topic is made on the first question, and the answer waits for it, where
  Kafka sends clients away to ask again.
- A broker that has lost its cluster ends the connection: another one may know.
- Transactional ids: there are no transactions yet. Refused with the code that clients take as
  fatal, so that a transactional producer ends with an error instead of asking forever.
- Queues of share groups (version 6), by "group:topic id:partition": the leader of the queue's
  partition of __share_group_state, or COORDINATOR_NOT_AVAILABLE while it has none. Kafka's brokers
  ask each other for it, clients do not.
"""

import re
from base64 import urlsafe_b64decode
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.isolation import check_contact
from penstock.model.endpoint import Endpoint
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, GroupId, TopicId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

BATCHED_FROM = 4
SHARES_FROM = 6
# A topic id is 16 bytes in base 64.
_SHARE_KEY: Final = re.compile(r"(.*\S.*):([A-Za-z0-9_-]{22}):([0-9]{1,9})", re.DOTALL | re.ASCII)


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Found(NamedTuple):
    node: BrokerId = BrokerId(-1)
    endpoint: Endpoint = Endpoint("", -1)
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


async def handle(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    check_contact(call)
    if call.version < BATCHED_FROM:
        found = await _find(call, request.key_type, request.key)
        return FindCoordinatorResponse(
            error_code=found.code,
            error_message=found.message,
            node_id=found.node,
            host=found.endpoint.host,
            port=found.endpoint.port,
        )
    # A client that repeats a key gets it answered as often, but it is looked up once.
    keys = dict.fromkeys(request.coordinator_keys)
    results = {key: await _find(call, request.key_type, key) for key in keys}
    return FindCoordinatorResponse(
        coordinators=[_coordinator(key, results[key]) for key in request.coordinator_keys]
    )


async def _find(call: Call, key_type: int, key: str) -> Found:
    try:
        if key_type == KeyType.TRANSACTION:
            detail = "this broker has no transactions"
            raise Refused(Reason.TRANSACTIONAL_ID_REFUSED, detail)
        if key_type == KeyType.SHARE and call.version >= SHARES_FROM:
            return Found(*await call.services.groups.find_share_coordinator(*_share_partition(key)))
        if key_type != KeyType.GROUP:
            detail = f"this broker has no coordinators of type {key_type}"
            raise Refused(Reason.INVALID_REQUEST, detail)
        return Found(*await call.services.groups.find_coordinator(GroupId(key)))
    except Refused as refused:
        return Found(code=error_code(refused), message=refused.detail)


def _share_partition(key: str) -> tuple[GroupId, TopicId, int]:
    found = _SHARE_KEY.fullmatch(key)
    if found is None:
        detail = f"{key!r} is not of the form group:topic id:partition"
        raise Refused(Reason.INVALID_REQUEST, detail)
    group_id, topic_id, partition = found.groups()
    data = urlsafe_b64decode(f"{topic_id}==")
    return GroupId(group_id), TopicId(UUID(bytes=data)), int(partition)


def _coordinator(key: str, found: Found) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=found.node,
        host=found.endpoint.host,
        port=found.endpoint.port,
        error_code=found.code,
        error_message=found.message,
    )


API = Api(
    key=ApiKey.FIND_COORDINATOR,
    versions=(0, 6),
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
    handle=handle,
)
