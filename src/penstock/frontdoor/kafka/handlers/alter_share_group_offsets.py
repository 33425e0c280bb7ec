"""AlterShareGroupOffsets, version 0: let a share group without members go on from other offsets.

- A group with members is NON_EMPTY_GROUP, one of another type GROUP_ID_NOT_FOUND; one that does not
  exist is made. A topic or partition that does not exist is refused by itself.
- A queue whose records are still leased is NON_EMPTY_GROUP too.
- With a topic to redrive, dead letters are brought back instead, at most as many as are asked for.
  Any broker does that, also for a group with members. It is not part of Kafka's protocol.

Differences from Kafka: an offset below 0 is INVALID_REQUEST; Kafka stores it. The new offset acts
at once; the leader of a partition on Kafka goes on with what it has in memory.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.shares import refusal_of
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, TopicId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    RedrivenLetters,
)

Place = tuple[TopicId, int]
# Records that one request brings back, so that its answer does not take long.
REDRIVEN_MAX = 10_000


async def handle(
    call: Call, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    if request.redriven_topic:
        return await _redrive(call, request)
    wanted, refused = _read(call, request)
    try:
        groups = call.services.groups
        outcomes = await groups.alter_share_offsets(GroupId(request.group_id), wanted)
    except Refused as whole:
        code, message = refusal_of(whole)
        return AlterShareGroupOffsetsResponse(error_code=code, error_message=message)
    answer = AlterShareGroupOffsetsResponse()
    for asked in request.topics:
        topic = call.services.topics.find(asked.topic_name)
        of_topic = AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        if topic is not None:
            of_topic.topic_id = topic.topic_id
        for each in asked.partitions:
            name = (asked.topic_name, each.partition_index)
            outcome = refused.get(name)
            if outcome is None and topic is not None:
                outcome = outcomes.get((topic.topic_id, each.partition_index))
            code, message = refusal_of(outcome)
            of_topic.partitions.append(
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=each.partition_index, error_code=code, error_message=message
                )
            )
        answer.responses.append(of_topic)
    return answer


async def _redrive(
    call: Call, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    limit = min(max(request.redriven_max, 1), REDRIVEN_MAX)
    try:
        result = await call.services.queues.redrive(
            GroupId(request.group_id), request.redriven_topic, limit
        )
    except Refused as refused:
        code, message = refusal_of(refused)
        return AlterShareGroupOffsetsResponse(error_code=code, error_message=message)
    redriven = RedrivenLetters(
        reopened=result.reopened,
        copied=result.copied,
        skipped=result.skipped,
        is_finished=result.is_finished,
    )
    return AlterShareGroupOffsetsResponse(redriven=redriven)


def _read(
    call: Call, request: AlterShareGroupOffsetsRequest
) -> tuple[dict[Place, int], dict[tuple[str, int], Refused]]:
    wanted: dict[Place, int] = {}
    refused: dict[tuple[str, int], Refused] = {}
    for asked in request.topics:
        topic = call.services.topics.find(asked.topic_name)
        for each in asked.partitions:
            index, name = each.partition_index, (asked.topic_name, each.partition_index)
            if topic is None or not 0 <= index < topic.partitions:
                refused[name] = Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION)
            elif each.start_offset < 0:
                detail = f"{each.start_offset} is not an offset."
                refused[name] = Refused(Reason.INVALID_REQUEST, detail)
            else:
                wanted[topic.topic_id, index] = each.start_offset
    return wanted, refused


API = Api(
    key=ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    versions=(0, 0),
    request=AlterShareGroupOffsetsRequest,
    response=AlterShareGroupOffsetsResponse,
    handle=handle,
)
