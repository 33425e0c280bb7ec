"""OffsetDelete, version 0: forgets committed offsets, except of topics that the group reads now."""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.outcomes import outcome_code
from penstock.model.ids import GroupId, TopicName
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    partitions = [
        (TopicName(topic.name), partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    groups = call.services.groups
    outcomes = iter(await groups.delete_offsets(GroupId(request.group_id), partitions))
    topics = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=outcome_code(next(outcomes)),
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetDeleteResponse(topics=topics)


API = Api(
    key=ApiKey.OFFSET_DELETE,
    versions=(0, 0),
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
    handle=handle,
)
