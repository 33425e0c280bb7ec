"""DeleteRecords, versions 0 to 2: move the start of partitions forward.

Offset -1 means the high watermark. The new start is durable when the answer is sent. A topic
that is only compacted refuses with POLICY_VIOLATION, as Kafka does. The time of a request ends the
wait for other replicas (REQUEST_TIMED_OUT), never the deletion.
"""

import asyncio

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Refused
from penstock.model.ids import TopicName
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_NO_LOW_WATERMARK = -1


async def handle(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    wait_s = max(0, request.timeout_ms) / 1000
    topics = []
    for topic in request.topics:
        name = TopicName(topic.name)
        results = [_delete(call, name, partition, wait_s) for partition in topic.partitions]
        topics.append(
            DeleteRecordsTopicResult(name=name, partitions=await asyncio.gather(*results))
        )
    return DeleteRecordsResponse(topics=topics)


async def _delete(
    call: Call, topic: TopicName, asked: DeleteRecordsPartition, wait_s: float
) -> DeleteRecordsPartitionResult:
    index = asked.partition_index
    try:
        start = await call.services.offsets.delete_before(topic, index, asked.offset, wait_s=wait_s)
    except Refused as refused:
        return _refused(index, error_code(refused))
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=start)


def _refused(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=_NO_LOW_WATERMARK, error_code=code
    )


API = Api(
    key=ApiKey.DELETE_RECORDS,
    versions=(0, 2),
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
    handle=handle,
)
