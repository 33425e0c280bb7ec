"""Produce, versions 0 to 13: append one batch to each of some partitions.

- Versions 0 to 2 carry message sets of the formats 0 and 1, which are stored as record batches.
- From version 3 on a partition gets exactly one record batch; zstd needs version 7.
- From version 13 on topics are named by their ids.
- With `acks` -1 the answer comes when the batch is committed: held by a majority, and by
  `min.insync.replicas` of them; with 1 when this broker has it, as safe as the topic's flush policy
  asks for. With 0 there is no answer, but later requests on its connection wait as for 1; a
  refusal closes the connection, which is the one way to tell the client that something is wrong.
- From version 10 on, a client that asks the wrong broker learns the right one (KIP-951).
- A partition that has too much unflushed data refuses with NOT_ENOUGH_REPLICAS, since that is the
  one code which every client takes as: not written, try again.
- Transactional produces are refused; clients take the code for it as fatal.
"""

from itertools import groupby
from uuid import UUID

from penstock.broker.produce import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    Part,
    Production,
    RecordsRefused,
)
from penstock.frontdoor.kafka.api import NO_REPLY, Api, Body, Call
from penstock.frontdoor.kafka.errors import ERROR_CODES, RefusedWith, error_code
from penstock.frontdoor.kafka.leader_hints import HINTED, LeaderHints
from penstock.frontdoor.kafka.produce_reply import reply_form
from penstock.frontdoor.kafka.refusals import refusal
from penstock.model.errors import Reason, Refused
from penstock.model.ids import TopicId, TopicName
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import encode
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.protocol.kafka.produce_bytes import ProduceForm

FIRST_BATCH_VERSION = 3
# Older clients do not know the code for a storage error and would give up.
FIRST_STORAGE_ERROR_VERSION = 4
FIRST_ZSTD_VERSION = 7
FIRST_HINT_VERSION = 10
_HINTED_CODES = tuple(ERROR_CODES[reason] for reason in HINTED)
_ACKS = (ACKS_ALL, ACKS_NONE, ACKS_LEADER)


def handle(call: Call, request: ProduceRequest) -> list[Part] | Production:
    if request.transactional_id is not None or request.acks not in _ACKS:
        raise _refusal(request)
    version = call.version
    production = call.services.produce.start(request.acks, call.now + request.timeout_ms / 1000)
    for topic in request.topic_data:
        name, topic_id = TopicName(topic.name), TopicId(topic.topic_id)
        for data in topic.partition_data:
            production.append(
                name,
                topic_id,
                data.index,
                data.records,
                is_legacy=version < FIRST_BATCH_VERSION,
                takes_zstd=version >= FIRST_ZSTD_VERSION,
            )
    return production.finish()


def encode_answer(call: Call, request: ProduceRequest, parts: list[Part]) -> Body:
    if request.acks == ACKS_NONE:
        for part in parts:
            if part.error is not None:
                raise part.error
        return NO_REPLY
    version = call.version
    if len(parts) == 1:
        # By far the most frequent: no message is built, its bytes are filled in.
        (part,) = parts
        if part.error is None and part.appended is not None:
            form = reply_form(version, part.topic or part.topic_id, part.partition)
            return form.fill(part.appended)
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic,
                topic_id=topic_id,
                partition_responses=[_partition(call, part) for part in of_topic],
            )
            for (topic, topic_id), of_topic in groupby(parts, _topic_of)
        ]
    )
    if any(part.error is not None and part.error.reason in HINTED for part in parts):
        _hint(call, response)
    return encode(response, version)


def _topic_of(part: Part) -> tuple[str, UUID]:
    return part.topic, part.topic_id


def _partition(call: Call, part: Part) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=part.partition)
    if part.error is not None:
        _refuse(answer, call.version, part.error)
        call.failed(answer.error_code)
    elif part.appended is not None:
        answer.base_offset = part.appended.base_offset
        answer.log_append_time_ms = part.appended.append_time_ms
        answer.log_start_offset = part.appended.log_start_offset
    return answer


def _hint(call: Call, response: ProduceResponse) -> None:
    """Names the leaders of partitions that this broker does not lead."""
    if call.version < FIRST_HINT_VERSION:
        return
    hints = LeaderHints(call.services.leaderships)
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code not in _HINTED_CODES:
                continue
            leader = hints.find(TopicName(topic.name), TopicId(topic.topic_id), answer.index)
            if leader is not None:
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.node, leader_epoch=leader.term
                )
    response.node_endpoints = [
        NodeEndpoint(
            node_id=broker.id, host=broker.kafka.host, port=broker.kafka.port, rack=broker.rack
        )
        for broker in hints.brokers()
    ]


def _refusal(request: ProduceRequest) -> Refused:
    if request.transactional_id is not None:
        return Refused(Reason.TRANSACTIONAL_ID_REFUSED, "this broker has no transactions")
    return RefusedWith(ErrorCode.INVALID_REQUIRED_ACKS, f"acks can't be {request.acks}")


def _refuse(answer: PartitionProduceResponse, version: int, refused: Refused) -> None:
    answer.error_code = _code(version, refused)
    answer.error_message = refused.detail
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1
    if isinstance(refused, RecordsRefused):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in refused.record_errors
        ]


def _code(version: int, refused: Refused) -> ErrorCode:
    if refused.reason is Reason.THROTTLED:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if refused.reason is Reason.STORAGE_ERROR and version < FIRST_STORAGE_ERROR_VERSION:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error_code(refused)


def refuse(call: Call, request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    """Nothing at all for a client that wants no answer."""
    if request.acks == ACKS_NONE:
        return None
    response: ProduceResponse = refusal(ProduceResponse, request, call.version, code)
    return response


API = Api(
    key=ApiKey.PRODUCE,
    versions=(0, 13),
    request=ProduceRequest,
    response=ProduceResponse,
    handle=handle,
    encode=encode_answer,
    refuse=refuse,
    adds_pressure=True,
    is_pipelined=True,
    learn=ProduceForm.of,
)
