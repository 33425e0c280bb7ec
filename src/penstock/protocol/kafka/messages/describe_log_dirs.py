"""DescribeLogDirs: the data directories and how much each partition takes."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import (
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
)


@struct
class DescribableLogDirTopic:
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


@message(ApiKey.DESCRIBE_LOG_DIRS, versions="0-5", flexible="2+")
class DescribeLogDirsRequest:
    # Null asks for all topics.
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, "0+", nullable="0+")


@struct
class DescribeLogDirsPartition:
    partition_index: int = int32("0+")
    partition_size: int = int64("0+")
    offset_lag: int = int64("0+")
    is_future_key: bool = boolean("0+")


@struct
class DescribeLogDirsTopic:
    name: str = string("0+")
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition, "0+")


@struct
class DescribeLogDirsResult:
    error_code: int = int16("0+")
    log_dir: str = string("0+")
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic, "0+")
    total_bytes: int = int64("4+", default=-1)
    usable_bytes: int = int64("4+", default=-1)
    is_cordoned: bool = boolean("5+")


@message(ApiKey.DESCRIBE_LOG_DIRS, versions="0-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, "0+")
