"""DeleteShareGroupOffsets, version 0: let a share group without members forget topics.

- A group with members is NON_EMPTY_GROUP; one that does not exist, or is of another type,
  GROUP_ID_NOT_FOUND. A topic that the group does not know is UNKNOWN_TOPIC_OR_PARTITION.
- All of a topic goes, or, while one of its records is leased, nothing (NON_EMPTY_GROUP).
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.shares import refusal_of
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


async def handle(
    call: Call, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    names = [each.topic_name for each in request.topics]
    found = {name: topic for name in names if (topic := call.services.topics.find(name))}
    topic_ids = [topic.topic_id for topic in found.values()]
    try:
        groups = call.services.groups
        outcomes = await groups.delete_share_offsets(GroupId(request.group_id), topic_ids)
    except Refused as whole:
        code, message = refusal_of(whole)
        return DeleteShareGroupOffsetsResponse(error_code=code, error_message=message)
    answer = DeleteShareGroupOffsetsResponse()
    for name in names:
        topic, outcome = found.get(name), None
        if topic is None:
            outcome = Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            outcome = outcomes.get(topic.topic_id)
        code, message = refusal_of(outcome)
        of_topic = DeleteShareGroupOffsetsResponseTopic(
            topic_name=name, error_code=code, error_message=message
        )
        if topic is not None:
            of_topic.topic_id = topic.topic_id
        answer.responses.append(of_topic)
    return answer


API = Api(
    key=ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    versions=(0, 0),
    request=DeleteShareGroupOffsetsRequest,
    response=DeleteShareGroupOffsetsResponse,
    handle=handle,
)
