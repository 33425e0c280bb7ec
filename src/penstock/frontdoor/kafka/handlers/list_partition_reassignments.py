"""ListPartitionReassignments, version 0: the partitions whose replicas are being moved.

Null asks for all. A partition that does not exist or is not being moved is left out.
"""

from penstock.broker.reassignments import Moving
from penstock.frontdoor.kafka.api import Api, Call
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(
    call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {
            (topic.name, index) for topic in request.topics for index in topic.partition_indexes
        }
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for moving in call.services.reassignments.current():
        if wanted is None or (moving.topic, moving.partition) in wanted:
            topics.setdefault(moving.topic, []).append(_ongoing(moving))
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            OngoingTopicReassignment(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def _ongoing(moving: Moving) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=moving.partition,
        replicas=list(moving.replicas),
        adding_replicas=list(moving.adding),
        removing_replicas=list(moving.removing),
    )


API = Api(
    key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
    versions=(0, 0),
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
    handle=handle,
)
