"""AlterReplicaLogDirs: moves replicas between the directories of a broker."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int16, int32, message, string, struct


@struct
class AlterReplicaLogDirTopic:
    name: str = string("1+")
    partitions: list[int] = array(int32, "1+")


@struct
class AlterReplicaLogDir:
    path: str = string("1+")
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic, "1+")


@message(ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir, "1+")


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: int = int32("1+")
    error_code: int = int16("1+")


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str = string("1+")
    partitions: list[AlterReplicaLogDirPartitionResult] = array(
        AlterReplicaLogDirPartitionResult, "1+"
    )


@message(ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = int32("1+")
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult, "1+")
