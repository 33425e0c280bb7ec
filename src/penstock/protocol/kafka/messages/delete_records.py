"""DeleteRecords: move a partition's log start offset forward."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int16, int32, int64, message, string, struct


@struct
class DeleteRecordsPartition:
    partition_index: int = int32("0+")
    offset: int = int64("0+")


@struct
class DeleteRecordsTopic:
    name: str = string("0+")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, "0+")


@message(ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+")
    timeout_ms: int = int32("0+")


@struct
class DeleteRecordsPartitionResult:
    partition_index: int = int32("0+")
    low_watermark: int = int64("0+")
    error_code: int = int16("0+")


@struct
class DeleteRecordsTopicResult:
    name: str = string("0+")
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult, "0+")


@message(ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: int = int32("0+")
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, "0+")
