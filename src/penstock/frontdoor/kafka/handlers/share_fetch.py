"""ShareFetch, versions 1 and 2: lease records of queues and read them, waiting for some if need be;
say on the way what became of earlier ones (KIP-932).

- A share session remembers the partitions (`share_sessions`). Epoch 0 opens one, -1 closes it and
  gives all leases back, every other request says the next epoch. A session that this broker does
  not know, or an epoch out of step, refuses the whole request.
- Acknowledgements are decided first, so that what they release can be leased by the same request,
  and stored with its leases. They are all or nothing per partition, and have an error of their own
  beside that of the fetch.
- Leases are durable before their records leave. The answer names the leased offsets; its batches
  may hold others around them, which the client skips.
- Partitions take turns at being served first. A member that acks at once what it got stays with its
  partition for a moment, so that its acks and its next leases are stored together. Partitions
  without records, errors and acknowledgements are left out of the answer.
- Version 2 can ask for no more records than its limit, whatever the batches (KIP-1206), and renew
  leases (KIP-1222). Such a request fetches nothing: its limits must be 0.
- A client that asks the wrong broker learns the right one.
- The wait ends when the connection closes. While it lasts, no later request of its connection
  starts. If there are too many sessions, the refusal waits as long: clients ask again at once.

Differences from Kafka:
- A topic id that nobody knows is UNKNOWN_TOPIC_ID for its partitions; on Kafka it fails the whole
  request and each one after it. An unknown way to acquire is INVALID_REQUEST.
- Where a member opens a session and this broker knows no earlier one, leases that it still has from
  before end: the broker or the leader was another one then. Kafka forgets all leases with the
  leader, and with them the delivery attempt.
- The end of a session also releases records of partitions that the session has forgotten.
- A partition that no member of the group has asked for has no queue, and nobody but the group's
  coordinator makes one. A fetch from it is UNKNOWN_SERVER_ERROR as on Kafka, with a message that
  says why, and at once; Kafka waits first.
"""

import asyncio
from collections.abc import Iterable

from penstock.broker.later import Task
from penstock.broker.queues import AcquiredPartition, AcquireQuery, WantedShare
from penstock.frontdoor.kafka.api import Api, Body, Call
from penstock.frontdoor.kafka.errors import ERROR_CODES, RefusedWith
from penstock.frontdoor.kafka.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    ShareKey,
    ShareSession,
)
from penstock.frontdoor.kafka.shares import (
    FIRST_RENEWING_VERSION,
    Acknowledging,
    Claims,
    by_topic,
    check_partition,
    hint,
    read_claims,
    refusal_of,
    session_key,
)
from penstock.model.errors import Reason, Refused
from penstock.model.file_ranges import FileRange
from penstock.model.ids import TopicId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.fetch_bytes import encode_fetch_response
from penstock.protocol.kafka.messages.share_fetch import (
    BATCH_OPTIMIZED,
    RECORD_LIMIT,
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareLeader,
)

# As on Kafka: clients fail with codes that they don't expect here, and go on after this one.
_CODES = {Reason.GROUP_ID_NOT_FOUND: ErrorCode.UNKNOWN_SERVER_ERROR}

Parts = dict[ShareKey, ShareFetchPartitionData]


class ShareFetchCall(Task[ShareFetchResponse]):
    """Lets go of the files of an answer that nobody waits for any more."""

    __slots__ = ()

    def drop(self, answer: ShareFetchResponse) -> None:
        _drop(answer)


def handle(call: Call, request: ShareFetchRequest) -> ShareFetchCall:
    return ShareFetchCall(_serve(call, request))


async def _serve(call: Call, request: ShareFetchRequest) -> ShareFetchResponse:
    key = session_key(request.group_id, request.member_id)
    _check(request)
    session = await _session(call, request, key)
    acks = Acknowledging(call.services.queues, key, _claims(call, request))
    parts: Parts = {share: _new_part(share) for share in acks.places}
    if session is None:
        _add_outcomes(parts, await call.connection.shares.end(key, acks))
        return _response(call, key, parts)
    await acks.decided()
    try:
        await _fetch(call, request, key, session, parts)
        _add_outcomes(parts, await acks.outcomes())
    except BaseException:
        _release(parts.values())
        raise
    return _response(call, key, parts)


def _check(request: ShareFetchRequest) -> None:
    if request.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
        detail = f"There is no acquire mode {request.share_acquire_mode}."
        raise Refused(Reason.INVALID_REQUEST, detail)
    limits = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
    if request.is_renew_ack and any(limits):
        raise Refused(Reason.INVALID_REQUEST, "A request that renews leases can't fetch records.")
    if request.share_session_epoch == INITIAL_EPOCH and _acknowledges(request):
        detail = "A request that opens a share session can't acknowledge records."
        raise Refused(Reason.INVALID_REQUEST, detail)


def _acknowledges(request: ShareFetchRequest) -> bool:
    return any(
        each.acknowledgement_batches for topic in request.topics for each in topic.partitions
    )


def _claims(call: Call, request: ShareFetchRequest) -> Claims:
    if not _acknowledges(request):
        return Claims()
    may_renew = call.version >= FIRST_RENEWING_VERSION and request.is_renew_ack
    return read_claims(call.services.topics, request.topics, may_renew=may_renew)


def _wait_ms(call: Call, request: ShareFetchRequest) -> int:
    return min(max(0, request.max_wait_ms), call.services.limits.fetch_wait_ms_max)


# The session


async def _session(call: Call, request: ShareFetchRequest, key: SessionKey) -> ShareSession | None:
    """The session of the request; None if this is its last one."""
    shares, epoch = call.connection.shares, request.share_session_epoch
    if epoch == FINAL_EPOCH:
        shares.sessions.get(key)
        return None
    named = _named(request)
    if epoch != INITIAL_EPOCH:
        return shares.sessions.step(key, epoch, named, _forgotten(request))
    is_new = shares.sessions.find(key) is None
    try:
        session = shares.sessions.open(key, call.connection.id, named)
    except RefusedWith as refused:
        if refused.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            await asyncio.sleep(_wait_ms(call, request) / 1000)
        raise
    if is_new:
        await shares.release(key, named)
    return session


def _named(request: ShareFetchRequest) -> list[ShareKey]:
    return [
        (TopicId(topic.topic_id), each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]


def _forgotten(request: ShareFetchRequest) -> list[ShareKey]:
    return [
        (TopicId(topic.topic_id), partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


# The records


async def _fetch(
    call: Call, request: ShareFetchRequest, key: SessionKey, session: ShareSession, parts: Parts
) -> None:
    wanted: list[WantedShare] = []
    bytes_max = min(request.max_bytes, call.services.limits.fetch_bytes_max)
    # By now there are just parts of partitions that are acked.
    for share in session.in_turn(request.share_session_epoch, parts, call.now):
        refused = check_partition(call.services.topics, share)
        if refused is None:
            wanted.append(WantedShare(topic_id=share[0], partition=share[1], bytes_max=bytes_max))
        else:
            part = _part(parts, share)
            part.error_code, part.error_message = refusal_of(refused)
    if not wanted or request.max_records <= 0 or bytes_max <= 0:
        return
    query = AcquireQuery(
        group_id=key.group_id,
        member_id=key.member_id,
        wanted=wanted,
        wait_ms_max=_wait_ms(call, request),
        bytes_min=min(max(0, request.min_bytes), bytes_max),
        bytes_max=bytes_max,
        records_max=request.max_records,
        batch_size=max(1, request.batch_size),
        is_exact=request.share_acquire_mode == RECORD_LIMIT,
    )
    for acquired in await call.services.queues.acquired(query):
        _add_acquired(parts, session, acquired, call.now)


def _add_acquired(
    parts: Parts, session: ShareSession, acquired: AcquiredPartition, now: float
) -> None:
    share = (acquired.wanted.topic_id, acquired.wanted.partition)
    if acquired.reason is not None:
        part = _part(parts, share)
        part.error_code = _CODES.get(acquired.reason) or ERROR_CODES[acquired.reason]
        part.error_message = acquired.detail or None
    elif acquired.ranges:
        part = _part(parts, share)
        part.records = acquired.records
        part.acquired_records = [
            AcquiredRecords(
                first_offset=each.first, last_offset=each.last, delivery_count=each.attempt
            )
            for each in acquired.ranges
        ]
        session.served(share, now)
    elif isinstance(acquired.records, FileRange):
        acquired.records.release()


# The answer


def _part(parts: Parts, share: ShareKey) -> ShareFetchPartitionData:
    part = parts.get(share)
    if part is None:
        part = parts[share] = _new_part(share)
    return part


def _new_part(share: ShareKey) -> ShareFetchPartitionData:
    return ShareFetchPartitionData(
        partition_index=share[1], current_leader=ShareLeader(), records=b""
    )


def _add_outcomes(parts: Parts, outcomes: dict[ShareKey, Refused | None]) -> None:
    for share, refused in outcomes.items():
        part = _part(parts, share)
        part.acknowledge_error_code, part.acknowledge_error_message = refusal_of(refused)


def _response(call: Call, key: SessionKey, parts: Parts) -> ShareFetchResponse:
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=call.services.queues.lock_duration_ms(key.group_id),
        node_endpoints=hint(call, parts),
        responses=[
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(parts).items()
        ],
    )


def encode_answer(call: Call, request: ShareFetchRequest, answer: ShareFetchResponse) -> Body:
    try:
        return encode_fetch_response(answer, call.version)
    except Exception:
        _drop(answer)
        raise


def _drop(answer: ShareFetchResponse) -> None:
    for topic in answer.responses:
        _release(topic.partitions)


def _release(parts: Iterable[ShareFetchPartitionData]) -> None:
    for part in parts:
        if isinstance(part.records, FileRange):
            part.records.release()


API = Api(
    key=ApiKey.SHARE_FETCH,
    versions=(1, 2),
    request=ShareFetchRequest,
    response=ShareFetchResponse,
    handle=handle,
    encode=encode_answer,
)
