"""DescribeTopicPartitions, version 0: topics in the order of their names, page by page.

A page holds at most `response_partition_limit` partitions, and never more than the broker's
`max.request.partition.size.limit`; the cursor in the answer is where the next page begins.

Deviations: eligible leaders (ELR) do not exist here and are reported as empty.
"""

from collections.abc import Iterator

from penstock.broker.topics import Topic, check_topic_name, is_internal
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.operations import ALL_ON_TOPIC
from penstock.model.errors import Reason, Refused
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(call: Call, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    names = _names(call, request)
    limit = call.services.topics.partitions_per_page_max
    left = max(1, min(limit, request.response_partition_limit))
    response = DescribeTopicPartitionsResponse()
    for name, first in _starts(request, names):
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = call.services.topics.find(name)
        if topic is None:
            if request.topics:
                response.topics.append(_missing(name))
            continue
        response.topics.append(_described(call, topic, first, first + left))
        if first + left < topic.partitions:
            response.next_cursor = Cursor(topic_name=name, partition_index=first + left)
            break
        left -= max(0, topic.partitions - first)
    return response


def _names(call: Call, request: DescribeTopicPartitionsRequest) -> list[str]:
    """The topics asked for, or all, from the cursor's on."""
    cursor = request.cursor
    asked = {topic.name for topic in request.topics}
    if cursor is not None and cursor.partition_index < 0:
        raise Refused(Reason.INVALID_REQUEST, "The cursor's partition must not be negative.")
    if cursor is not None and asked and cursor.topic_name not in asked:
        detail = f"The cursor's topic {cursor.topic_name} is not among the topics asked for."
        raise Refused(Reason.INVALID_REQUEST, detail)
    names = asked or {topic.name for topic in call.services.topics.all()}
    return sorted(name for name in names if cursor is None or name >= cursor.topic_name)


def _starts(request: DescribeTopicPartitionsRequest, names: list[str]) -> Iterator[tuple[str, int]]:
    """Each topic with the partition to begin at."""
    cursor = request.cursor
    for name in names:
        is_resumed = cursor is not None and name == cursor.topic_name
        yield name, cursor.partition_index if cursor is not None and is_resumed else 0


def _described(
    call: Call, topic: Topic, first: int, last: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        topic_authorized_operations=ALL_ON_TOPIC,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=0 if view.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=view.partition,
                leader_id=view.leader,
                leader_epoch=view.term,
                replica_nodes=view.replicas,
                isr_nodes=view.in_sync,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=view.offline,
            )
            for view in call.services.leaderships.describe(topic, first, last)
        ],
    )


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except Refused as refused:
        code = error_code(refused)
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, is_internal=is_internal(name)
    )


API = Api(
    key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    versions=(0, 0),
    request=DescribeTopicPartitionsRequest,
    response=DescribeTopicPartitionsResponse,
    handle=handle,
)
