"""CreatePartitions: grow topics to a new partition count."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, boolean, int16, int32, message, string, struct


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int] = array(int32, "0+")


@struct
class CreatePartitionsTopic:
    name: str = string("0+")
    count: int = int32("0+")
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, "0+", nullable="0+"
    )


@message(ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")


@struct
class CreatePartitionsTopicResult:
    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


@message(ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: int = int32("0+")
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, "0+")
