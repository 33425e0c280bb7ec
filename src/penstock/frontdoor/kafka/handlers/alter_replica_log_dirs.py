"""AlterReplicaLogDirs, versions 1 and 2: a broker has one directory, so nothing can move.

A replica is where it should be if that one is named, by the path that DescribeLogDirs reports. Any
other path is LOG_DIR_NOT_FOUND.
"""

from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Refused
from penstock.model.ids import TopicName
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(call: Call, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    own = call.services.log_directories.path
    codes: dict[str, dict[int, int]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            of_topic = codes.setdefault(topic.name, {})
            for index in topic.partitions:
                if directory.path == own:
                    of_topic[index] = _code_here(call, TopicName(topic.name), index)
                else:
                    of_topic[index] = ErrorCode.LOG_DIR_NOT_FOUND
    return _response(codes)


def _code_here(call: Call, topic: TopicName, index: int) -> int:
    try:
        call.services.leaderships.replica(topic, index).check_running()
    except Refused as refused:
        return error_code(refused)
    return ErrorCode.NONE


def _response(codes: dict[str, dict[int, int]]) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index, code in of_topic.items()
                ],
            )
            for name, of_topic in codes.items()
        ]
    )


def refuse(
    call: Call, request: AlterReplicaLogDirsRequest, code: ErrorCode
) -> AlterReplicaLogDirsResponse:
    codes: dict[str, dict[int, int]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            codes.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, int(code)))
    return _response(codes)


API = Api(
    key=ApiKey.ALTER_REPLICA_LOG_DIRS,
    versions=(1, 2),
    request=AlterReplicaLogDirsRequest,
    response=AlterReplicaLogDirsResponse,
    handle=handle,
    refuse=refuse,
)
