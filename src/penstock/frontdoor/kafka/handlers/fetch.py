"""Fetch, versions 0 to 18: read batches from some partitions, waiting for them if need be.

- The records of an answer are ranges of segment files, sent without passing through Python.
- An offset inside a batch returns the whole batch; the client skips what it has.
- Versions below 4 get their records in the formats 0 and 1; zstd needs version 10.
- Incremental sessions exist from version 7 on (KIP-227), topic ids from 13 on. An id that nobody
  knows is UNKNOWN_TOPIC_ID; that of a topic which a session has read and which is gone is
  UNKNOWN_TOPIC_OR_PARTITION, and INCONSISTENT_TOPIC_ID once there is another topic of its name.
- The last stable offset is the high watermark, since there are no transactions yet; for
  read_committed the list of aborted ones is empty.
- From version 16 on, a client that asks the wrong broker learns the right one (KIP-951).
- From version 11 on, followers serve consumers too. With `replica.selector.class` set, the leader
  sends those that name their rack to a follower there (KIP-392). A follower never answers
  OFFSET_OUT_OF_RANGE, which some clients take for the last word: for what it does not have it
  answers OFFSET_NOT_AVAILABLE, and the client asks the leader. Whether a consumer's past differs
  from the log (KIP-595) only the leader says.
- Followers do not fetch: brokers replicate on the peer port.
"""

from itertools import groupby
from uuid import UUID

from penstock.broker.fetch import MAGIC_NEWEST, FetchCall, FetchQuery
from penstock.broker.readers import Fetched, PartitionKey, Reader, Wanted, partition_key
from penstock.frontdoor.kafka.api import Api, Body, Call
from penstock.frontdoor.kafka.errors import ERROR_CODES
from penstock.frontdoor.kafka.fetch_sessions import (
    FINAL_EPOCH,
    NO_SESSION,
    FetchContext,
    FetchSessions,
    SessionAnswer,
    SessionStep,
)
from penstock.frontdoor.kafka.leader_hints import HINTED, LeaderHints
from penstock.frontdoor.kafka.refusals import refusal
from penstock.model.errors import Reason, Refused
from penstock.model.ids import TopicId, TopicName
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import decode
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.fetch_bytes import FetchBytes, FetchReply, encode_fetch_response
from penstock.protocol.kafka.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

FIRST_MAGIC_1_VERSION = 2
FIRST_MAGIC_2_VERSION = 4
# Older clients do not know the code for a storage error and would give up.
FIRST_STORAGE_ERROR_VERSION = 6
FIRST_ZSTD_VERSION = 10
FIRST_RACK_VERSION = 11
FIRST_TOPIC_ID_VERSION = 13
FIRST_HINT_VERSION = 16
READ_COMMITTED = 1
# Fewer partitions are not worth remembering.
REMEMBERED_MIN = 8
_HINTED_CODES = tuple(ERROR_CODES[reason] for reason in HINTED)


class FetchMemory:
    """The last fetch of a connection without a session: its next one is most likely the same but
    for the positions of partitions that had news."""

    def __init__(
        self, sessions: FetchSessions, last: FetchBytes, reader: Reader, version: int
    ) -> None:
        self._sessions = sessions
        self._last = last
        self.reader = reader
        self._wanted = list(reader)
        self._numbers = {wanted: number for number, wanted in enumerate(self._wanted)}
        self._reply = FetchReply(last.request, version)

    @classmethod
    def of(cls, call: Call, request: FetchRequest, body: bytes) -> "FetchMemory | None":
        """Of requests without a session that name many partitions, each of them once."""
        count = sum(len(topic.partitions) for topic in request.topics)
        if count < REMEMBERED_MIN or request.session_epoch != FINAL_EPOCH or request.session_id:
            return None
        wanted = _wanted(request)
        last = FetchBytes(request, call.version, body)
        if len({each.key for each in wanted}) < count or not last.is_regular:
            return None
        sessions = call.connection.fetch_sessions
        reader = sessions.keep(wanted)
        return None if reader is None else cls(sessions, last, reader, call.version)

    @property
    def request(self) -> FetchRequest:
        return self._last.request

    def recall(self, version: int, body: bytes) -> bool:
        """Whether this is the next request of the same kind; then it has become it."""
        changed = self._last.advance(version, body)
        if changed is None:
            return False
        for number, position in changed.items():
            wanted = self._wanted[number]
            wanted.offset, wanted.bytes_max = position.offset, position.bytes_max
            wanted.term, wanted.last_fetched_term = position.term, position.last_fetched_term
            self.reader.moved(wanted)
        return True

    def encode(self, answer: SessionAnswer, response: FetchResponse) -> Body:
        numbers = [self._numbers[fetched.wanted] for fetched in answer.partitions]
        news = [data for topic in response.responses for data in topic.partitions]
        return self._reply.fill(zip(numbers, news, strict=True), response.node_endpoints)

    def close(self) -> None:
        self._sessions.let_go(self.reader)


def decode_request(
    call: Call, frame: memoryview, position: int, request_class: type[FetchRequest]
) -> FetchRequest:
    connection, version = call.connection, call.version
    memory = connection.memory
    body = bytes(frame[position:])
    if isinstance(memory, FetchMemory):
        if memory.recall(version, body):
            return memory.request
        connection.memory = None
        memory.close()
    request = decode(request_class, version, body)
    connection.memory = FetchMemory.of(call, request, body)
    return request


def handle(call: Call, request: FetchRequest) -> FetchCall:
    _refuse_followers(request)
    version = call.version
    query = FetchQuery(
        wait_ms_max=request.max_wait_ms,
        bytes_min=request.min_bytes,
        bytes_max=request.max_bytes,
        magic=_magic(version),
        takes_zstd=version >= FIRST_ZSTD_VERSION,
        rack=request.rack_id if version >= FIRST_RACK_VERSION else None,
    )
    return call.services.fetch.fetch(_context(call, request), query)


def _context(call: Call, request: FetchRequest) -> FetchContext:
    """What the request reads; refuses one that is out of step with its session."""
    memory = _memory(call, request)
    if memory is not None:
        return FetchContext(memory.reader, is_kept=True)
    uses_topic_ids = call.version >= FIRST_TOPIC_ID_VERSION
    step = SessionStep(request.session_id, request.session_epoch, uses_topic_ids)
    return call.connection.fetch_sessions.begin(step, _wanted(request), _forgotten(request))


def _memory(call: Call, request: FetchRequest) -> FetchMemory | None:
    memory = call.connection.memory
    is_its_own = isinstance(memory, FetchMemory) and memory.request is request
    return memory if is_its_own else None  # type: ignore[return-value]  # just checked


def _refuse_followers(request: FetchRequest) -> None:
    state = request.replica_state
    if request.replica_id >= 0 or (state is not None and state.replica_id >= 0):
        raise Refused(Reason.INVALID_REQUEST, "brokers replicate on the peer port")


def _wanted(request: FetchRequest) -> list[Wanted]:
    return [
        Wanted(
            TopicName(topic.topic),
            TopicId(topic.topic_id),
            partition.partition,
            offset=partition.fetch_offset,
            bytes_max=partition.partition_max_bytes,
            term=partition.current_leader_epoch,
            last_fetched_term=partition.last_fetched_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]


def _forgotten(request: FetchRequest) -> list[PartitionKey]:
    return [
        partition_key(TopicName(topic.topic), TopicId(topic.topic_id), partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


def _magic(version: int) -> int:
    if version >= FIRST_MAGIC_2_VERSION:
        return MAGIC_NEWEST
    return 1 if version >= FIRST_MAGIC_1_VERSION else 0


def encode_answer(call: Call, request: FetchRequest, answer: SessionAnswer) -> Body:
    try:
        response, memory = _response(call, request, answer), _memory(call, request)
        if memory is not None:
            return memory.encode(answer, response)
        return encode_fetch_response(response, call.version)
    except Exception:
        answer.release()
        raise


def _response(call: Call, request: FetchRequest, answer: SessionAnswer) -> FetchResponse:
    version, is_read_committed = call.version, request.isolation_level == READ_COMMITTED
    topics = [
        FetchableTopicResponse(
            topic=topic,
            topic_id=topic_id,
            partitions=[_partition(call, is_read_committed, one) for one in of_topic],
        )
        for (topic, topic_id), of_topic in groupby(answer.partitions, _topic_of)
    ]
    response = FetchResponse(session_id=answer.session_id, responses=topics)
    if version >= FIRST_HINT_VERSION and any(one.reason in HINTED for one in answer.partitions):
        _hint(call, response)
    return response


def _hint(call: Call, response: FetchResponse) -> None:
    """Names the leaders of partitions that this broker does not lead."""
    hints = LeaderHints(call.services.leaderships)
    for topic in response.responses:
        for data in topic.partitions:
            if data.error_code not in _HINTED_CODES:
                continue
            name, topic_id = TopicName(topic.topic), TopicId(topic.topic_id)
            leader = hints.find(name, topic_id, data.partition_index)
            if leader is not None:
                data.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.node, leader_epoch=leader.term
                )
    response.node_endpoints = [
        NodeEndpoint(
            node_id=broker.id, host=broker.kafka.host, port=broker.kafka.port, rack=broker.rack
        )
        for broker in hints.brokers()
    ]


def _topic_of(fetched: Fetched) -> tuple[str, UUID]:
    return fetched.wanted.topic, fetched.wanted.topic_id


def _partition(call: Call, is_read_committed: bool, fetched: Fetched) -> PartitionData:
    data = PartitionData(
        partition_index=fetched.wanted.partition,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.high_watermark,
        log_start_offset=fetched.log_start_offset,
        aborted_transactions=[] if is_read_committed else None,
        records=fetched.records if fetched.records is not None else b"",
    )
    if fetched.reason is not None:
        code = _code(call.version, fetched.reason)
        data.error_code = code
        call.failed(code)
    if fetched.preferred is not None:
        data.preferred_read_replica = fetched.preferred
    if fetched.diverging is not None:
        term, end_offset = fetched.diverging
        data.diverging_epoch = EpochEndOffset(epoch=term, end_offset=end_offset)
    return data


def _code(version: int, reason: Reason) -> ErrorCode:
    if reason is Reason.STORAGE_ERROR and version < FIRST_STORAGE_ERROR_VERSION:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ERROR_CODES[reason]


def refuse(call: Call, request: FetchRequest, code: ErrorCode) -> FetchResponse:
    """An early answer without an error keeps the consumer's session as it is."""
    if code is ErrorCode.NONE:
        return FetchResponse(session_id=max(NO_SESSION, request.session_id))
    response: FetchResponse = refusal(FetchResponse, request, call.version, code)
    return response


API = Api(
    key=ApiKey.FETCH,
    versions=(0, 18),
    request=FetchRequest,
    response=FetchResponse,
    decode=decode_request,
    handle=handle,
    encode=encode_answer,
    refuse=refuse,
    drain_code=ErrorCode.NONE,
)
