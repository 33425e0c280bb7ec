"""ElectLeaders: give partitions back to their preferred leaders."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int8, int16, int32, message, string, struct


@struct
class TopicPartitions:
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


@message(ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int = int8("1+")
    # Null asks for all partitions.
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+")
    timeout_ms: int = int32("0+", default=60_000)


@struct
class PartitionResult:
    partition_id: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


@struct
class ReplicaElectionResult:
    topic: str = string("0+")
    partition_result: list[PartitionResult] = array(PartitionResult, "0+")


@message(ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult, "0+")
