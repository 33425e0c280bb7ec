"""Produce, versions 0 to 13: append one batch to each of some partitions.

- Versions 0 to 2 carry message sets of the formats 0 and 1, which are stored as record batches.
- From version 3 on a partition gets exactly one record batch; zstd needs version 7.
- From version 13 on topics are named by their ids.
- With `acks` -1 the answer comes when the batch is committed: held by a majority, and by
  `min.insync.replicas` of them; with 1 when this broker has it, as safe as the topic's flush policy
  asks for. With 0 there is no answer; a refusal closes the connection, which is the one way to tell
  the client that something is wrong.
- From version 10 on, whoever asks the wrong broker is told the right one (KIP-951).
- A partition that has too much unflushed data refuses with NOT_ENOUGH_REPLICAS, since that is the
  one code which every client takes as: not written, try again.
- Transactional produces are refused; clients take the code for it as fatal.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from penstock.broker.produce import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    Appended,
    Commit,
    Produce,
    RecordsRefused,
    Wait,
)
from penstock.frontdoor.kafka.api import Api, Call, Result
from penstock.frontdoor.kafka.errors import ERROR_CODES, error_code
from penstock.frontdoor.kafka.leader_hints import HINTED, LeaderHints
from penstock.frontdoor.kafka.produce_reply import ReplyForm, reply_form
from penstock.model.errors import Reason, Refused
from penstock.model.ids import TopicId, TopicName
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

FIRST_BATCH_VERSION = 3
# Older clients do not know the code for a storage error and would give up.
FIRST_STORAGE_ERROR_VERSION = 4
FIRST_ZSTD_VERSION = 7
FIRST_HINT_VERSION = 10
_HINTED_CODES = tuple(ERROR_CODES[reason] for reason in HINTED)
_ACKS = (ACKS_ALL, ACKS_NONE, ACKS_LEADER)


def handle(call: Call, request: ProduceRequest) -> Result:
    refusal = _refusal(request)
    if refusal is not None:
        return error_response(call, request, refusal)
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1 and request.acks != ACKS_NONE:
        return _handle_one(call, request, topics[0])
    answers = _Answers(call, request.acks)
    response = ProduceResponse(responses=[answers.take_topic(topic) for topic in topics])
    if request.acks == ACKS_NONE:
        if answers.refusal is not None:
            raise answers.refusal
        return None
    return answers.when_safe(response, call.now + request.timeout_ms / 1000)


# One partition, which is by far the most frequent: no message is built, its bytes are filled in.


def _handle_one(call: Call, request: ProduceRequest, topic: TopicProduceData) -> Result:
    data = topic.partition_data[0]
    produce, version, acks = call.services.produce, call.version, request.acks
    name, topic_id, index = topic.name, topic.topic_id, data.index
    try:
        appended = _append(produce, version, acks, topic, data)
    except Refused as refused:
        return _refused_one(call, version, name, topic_id, index, refused)
    form = reply_form(version, name or topic_id, index)
    commit = appended.done if acks == ACKS_ALL else appended.stored
    if commit is None:
        return form.fill(appended)
    if commit.is_settled:
        # Its office was lost, or its disk failed, while it was appended.
        return _settled_one(call, form, appended, commit.error)
    wait = _OneWait(form, appended, call.now + request.timeout_ms / 1000)
    produce.when_one_safe(commit, wait)
    return wait


class _OneWait(Wait):
    """One partition's answer, which is known but not true yet.

    It holds nothing of the request, whose records lie in a buffer that is used again.
    """

    __slots__ = ("_appended", "_call", "_deliver", "_form")

    def __init__(self, form: ReplyForm, appended: Appended, deadline: float) -> None:
        super().__init__(deadline)
        self._form = form
        self._appended = appended

    def then(self, deliver: Callable[[Any, Result], None], call: Any) -> None:
        self._deliver = deliver
        self._call = call

    def finish(self, error: Refused | None) -> None:
        self._deliver(self._call, _settled_one(self._call, self._form, self._appended, error))


def _settled_one(call: Call, form: ReplyForm, appended: Appended, error: Refused | None) -> Result:
    return form.fill(appended) if error is None else _refused_one(call, *form.key, error)


def _refused_one(
    call: Call, version: int, name: str, topic_id: UUID, index: int, refused: Refused
) -> ProduceResponse:
    answer = PartitionProduceResponse(index=index)
    _refuse(answer, version, refused)
    topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[answer])
    response = ProduceResponse(responses=[topic])
    if refused.reason in HINTED:
        _hint(call, response)
    return response


# Several partitions, or none.


class _Answers:
    """The answers to one request; some are written down before they are true."""

    __slots__ = (
        "_acks",
        "_call",
        "_commits",
        "_future",
        "_is_misled",
        "_response",
        "_waiting",
        "refusal",
    )

    _future: asyncio.Future[ProduceResponse]
    _response: ProduceResponse

    def __init__(self, call: Call, acks: int) -> None:
        self._call = call
        self._acks = acks
        self._waiting: list[PartitionProduceResponse] = []
        self._commits: list[Commit] = []
        # Whether the client must look for the leader of some partition.
        self._is_misled = False
        # The last one, for a client that gets no answers.
        self.refusal: Refused | None = None

    def take_topic(self, topic: TopicProduceData) -> TopicProduceResponse:
        answers = [self._take(topic, data) for data in topic.partition_data]
        return TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=answers
        )

    def _take(
        self, topic: TopicProduceData, data: PartitionProduceData
    ) -> PartitionProduceResponse:
        answer = PartitionProduceResponse(index=data.index)
        try:
            appended = _append(
                self._call.services.produce, self._call.version, self._acks, topic, data
            )
        except Refused as refused:
            self.refusal = refused
            self._refuse(answer, refused)
            return answer
        answer.base_offset = appended.base_offset
        answer.log_append_time_ms = appended.append_time_ms
        answer.log_start_offset = appended.log_start_offset
        commit = appended.done if self._acks == ACKS_ALL else appended.stored
        if commit is not None:
            self._waiting.append(answer)
            self._commits.append(commit)
        return answer

    def when_safe(self, response: ProduceResponse, deadline: float) -> Result:
        if not self._commits:
            return self._answered(response)
        self._response = response
        self._future = asyncio.get_running_loop().create_future()
        self._call.services.produce.when_safe(self._commits, deadline, self._finish)
        return self._future

    def _finish(self, errors: Sequence[Refused | None]) -> None:
        for answer, error in zip(self._waiting, errors, strict=True):
            if error is not None:
                self._refuse(answer, error)
        if not self._future.done():
            self._future.set_result(self._answered(self._response))

    def _refuse(self, answer: PartitionProduceResponse, refused: Refused) -> None:
        _refuse(answer, self._call.version, refused)
        self._is_misled |= refused.reason in HINTED

    def _answered(self, response: ProduceResponse) -> ProduceResponse:
        if self._is_misled:
            _hint(self._call, response)
        return response


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


def _append(
    produce: Produce, version: int, acks: int, topic: TopicProduceData, data: PartitionProduceData
) -> Appended:
    name = TopicName(topic.name)
    acks_all = acks == ACKS_ALL
    if version >= FIRST_BATCH_VERSION:
        return produce.append(
            name,
            TopicId(topic.topic_id),
            data.index,
            data.records,
            acks_all=acks_all,
            takes_zstd=version >= FIRST_ZSTD_VERSION,
        )
    messages = bytes(data.records or b"")
    return produce.append_messages(name, data.index, messages, acks_all=acks_all)


def _refusal(request: ProduceRequest) -> ErrorCode | None:
    if request.transactional_id is not None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.acks not in _ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    return None


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


def error_response(call: Call, request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    """The same code for every partition; nothing at all for a client that wants no answer."""
    if request.acks == ACKS_NONE:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


API = Api(
    key=ApiKey.PRODUCE,
    versions=(0, 13),
    request=ProduceRequest,
    response=ProduceResponse,
    handle=handle,
    pending=_OneWait,
    error_response=error_response,
    adds_pressure=True,
    is_pipelined=True,
)
