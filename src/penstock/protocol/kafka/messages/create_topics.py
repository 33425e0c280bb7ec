"""CreateTopics: new topics by partition count or by explicit assignment."""

from uuid import UUID

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
    uuid,
)


@struct
class CreatableReplicaAssignment:
    partition_index: int = int32("0+")
    broker_ids: list[int] = array(int32, "0+")


@struct
class CreatableTopicConfig:
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@struct
class CreatableTopic:
    name: str = string("0+")
    num_partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment, "0+")
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig, "0+")


@message(ApiKey.CREATE_TOPICS, versions="0-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic] = array(CreatableTopic, "0+")
    timeout_ms: int = int32("0+", default=60_000)
    validate_only: bool = boolean("1+")


@struct
class CreatableTopicConfigs:
    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1)
    is_sensitive: bool = boolean("5+")


@struct
class CreatableTopicResult:
    name: str = string("0+")
    topic_id: UUID = uuid("7+")
    error_code: int = int16("0+")
    error_message: str | None = string("1+", nullable="1+")
    topic_config_error_code: int = int16("5+", tag=0)
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="5+")


@message(ApiKey.CREATE_TOPICS, versions="0-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: int = int32("2+")
    topics: list[CreatableTopicResult] = array(CreatableTopicResult, "0+")
