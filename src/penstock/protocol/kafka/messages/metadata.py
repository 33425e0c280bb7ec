"""Metadata: brokers, topics and where their partitions live."""

from uuid import UUID

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import (
    array,
    boolean,
    int16,
    int32,
    message,
    string,
    struct,
    uuid,
)

# What Kafka sends as authorised operations when the client did not ask for them.
OPERATIONS_NOT_REQUESTED = -(2**31)


@struct
class MetadataRequestTopic:
    topic_id: UUID = uuid("10+")
    name: str | None = string("0+", nullable="10+")


@message(ApiKey.METADATA, versions="0-13", flexible="9+")
class MetadataRequest:
    # Null asks for all topics; version 0 says so with an empty list.
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, "0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@struct
class MetadataResponseBroker:
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("1+", nullable="1+", default=None)


@struct
class MetadataResponsePartition:
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array(int32, "0+")
    isr_nodes: list[int] = array(int32, "0+")
    offline_replicas: list[int] = array(int32, "5+")


@struct
class MetadataResponseTopic:
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="12+")
    topic_id: UUID = uuid("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition, "0+")
    topic_authorized_operations: int = int32("8+", default=OPERATIONS_NOT_REQUESTED)


@message(ApiKey.METADATA, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker, "0+")
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic, "0+")
    cluster_authorized_operations: int = int32("8-10", default=OPERATIONS_NOT_REQUESTED)
    error_code: int = int16("13+")
