"""DescribeLogDirs, versions 0 to 5: what partitions take on disk, and what the disk has left.

Deviations: a partition that damage stopped is listed under a separate directory, with
KAFKA_STORAGE_ERROR, so that the healthy ones stay visible; no directory is ever cordoned.
"""

from penstock.broker.log_directories import LogDirectory
from penstock.frontdoor.kafka.api import Api, Call
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def handle(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    directories = await call.services.log_directories.describe(_wanted(request))
    return DescribeLogDirsResponse(results=[_result(directory) for directory in directories])


def _wanted(request: DescribeLogDirsRequest) -> list[TopicPartition] | None:
    if request.topics is None:
        return None
    return [
        TopicPartition(TopicName(topic.topic), PartitionIndex(partition))
        for topic in request.topics
        for partition in topic.partitions
    ]


def _result(directory: LogDirectory) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR if directory.is_damaged else 0,
        log_dir=directory.path,
        topics=[
            DescribeLogDirsTopic(
                name=name,
                partitions=[
                    DescribeLogDirsPartition(partition_index=partition, partition_size=size)
                    for partition, size in sizes
                ],
            )
            for name, sizes in directory.topics.items()
        ],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )


API = Api(
    key=ApiKey.DESCRIBE_LOG_DIRS,
    versions=(0, 5),
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
    handle=handle,
)
