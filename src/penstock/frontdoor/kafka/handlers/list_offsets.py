"""ListOffsets, versions 0 to 11: offsets at the ends of a partition, or by time.

- Time -1 is the high watermark, -2 the log's start, -3 the record with the newest timestamp
  (from version 7 on), -4 the start of what is on local disk (8), which is the log's start. -5, the
  end of what is in tiered storage (9), and -6, the start of what is yet to go there (11), are -1:
  there is no such storage.
- A leader that has not committed anything in its term does not know the high watermark yet, and
  says so: OFFSET_NOT_AVAILABLE, before version 5 LEADER_NOT_AVAILABLE (KIP-207).
- A partition that is named more than once is answered once, with INVALID_REQUEST.
- The leader epoch of a request is checked before the leadership.
- Version 0 answers with a list of offsets before a time, as old clients expect it.
- Both isolation levels see the same, since there are no transactions yet.
"""

import asyncio
from typing import TypeAlias

from penstock.broker.offsets import Offsets, Position
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import RefusedWith, error_code
from penstock.model.errors import Reason, Refused
from penstock.model.ids import TopicName
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

Asked: TypeAlias = ListOffsetsPartition | None

FIRST_NOT_AVAILABLE_VERSION = 5
_FIRST_VERSIONS = {
    Position.MAX_TIMESTAMP: 7,
    Position.EARLIEST_LOCAL: 8,
    Position.LATEST_TIERED: 9,
    Position.EARLIEST_PENDING_UPLOAD: 11,
}


async def handle(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics = [_answer_topic(call, *topic) for topic in _by_partition(request).items()]
    return ListOffsetsResponse(topics=await asyncio.gather(*topics))


def _by_partition(request: ListOffsetsRequest) -> dict[str, dict[int, Asked]]:
    """What is asked of each partition; None of one that is named more than once."""
    topics: dict[str, dict[int, Asked]] = {}
    for topic in request.topics:
        asked = topics.setdefault(topic.name, {})
        for partition in topic.partitions:
            index = partition.partition_index
            asked[index] = None if index in asked else partition
    return topics


async def _answer_topic(
    call: Call, name: str, partitions: dict[int, Asked]
) -> ListOffsetsTopicResponse:
    answers = []
    for index, asked in partitions.items():
        try:
            answers.append(await _answer(call, TopicName(name), asked))
        except Refused as refused:
            answers.append(_refused(index, _code(call.version, refused)))
    return ListOffsetsTopicResponse(name=name, partitions=answers)


async def _answer(call: Call, topic: TopicName, asked: Asked) -> ListOffsetsPartitionResponse:
    if asked is None:
        raise Refused(Reason.INVALID_REQUEST, "the partition is named more than once")
    _check_position(call.version, asked.timestamp)
    offsets: Offsets = call.services.offsets
    index = asked.partition_index
    if call.version == 0:
        several = await offsets.find_several(topic, index, asked.timestamp, asked.max_num_offsets)
        return ListOffsetsPartitionResponse(partition_index=index, old_style_offsets=several)
    found = await offsets.find(topic, index, asked.timestamp, term=asked.current_leader_epoch)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.term,
    )


def _check_position(version: int, timestamp: int) -> None:
    if timestamp in (Position.LATEST, Position.EARLIEST) or timestamp >= 0:
        return
    first = next((first for name, first in _FIRST_VERSIONS.items() if name == timestamp), None)
    if first is None or version < first:
        detail = f"version {version} has no position {timestamp}"
        raise RefusedWith(ErrorCode.UNSUPPORTED_VERSION, detail)


def _code(version: int, refused: Refused) -> ErrorCode:
    is_unknown_to_client = version < FIRST_NOT_AVAILABLE_VERSION
    if refused.reason is Reason.OFFSET_NOT_AVAILABLE and is_unknown_to_client:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return error_code(refused)


def _refused(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)


API = Api(
    key=ApiKey.LIST_OFFSETS,
    versions=(0, 11),
    request=ListOffsetsRequest,
    response=ListOffsetsResponse,
    handle=handle,
)
