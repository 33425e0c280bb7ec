"""The two questions of a producer: who am I, and will you take these batches."""

import threading
from itertools import groupby
from operator import attrgetter

from penstock.client.wire.cluster_map import ClusterMap
from penstock.client.wire.errors import name_of, refused
from penstock.client.wire.partition_queue import Outgoing
from penstock.client.wire.settings import WireSettings
from penstock.client.wire.stamping import Identity
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.protocol.kafka.error_codes import RETRIABLE, ErrorCode
from penstock.protocol.kafka.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

# Of a transaction, which an idempotent producer does not have.
NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1


def identify(cluster_map: ClusterMap, stop: threading.Event) -> Identity:
    """A producer id that nobody else has."""
    patience = cluster_map.patience("getting a producer id", stop)
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS
    )
    while True:
        finding = cluster_map.patience("finding a broker", stop)
        answer = cluster_map.ask_any(request, InitProducerIdResponse, patience=finding)
        if answer.error_code == ErrorCode.NONE:
            return Identity(answer.producer_id, answer.producer_epoch)
        if answer.error_code not in RETRIABLE:
            raise refused("a producer id", answer.error_code)
        patience.pause(name_of(answer.error_code))


def produce_request(settings: WireSettings, acks: int, batches: list[Outgoing]) -> ProduceRequest:
    by_topic = groupby(
        sorted(batches, key=attrgetter("partition")), key=lambda one: one.partition.topic
    )
    return ProduceRequest(
        acks=acks,
        timeout_ms=int(settings.request_timeout_s * 1000),
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(
                        index=one.partition.partition, records=memoryview(one.data)
                    )
                    for one in ones
                ],
            )
            for topic, ones in by_topic
        ],
    )


def answers_by_partition(
    answer: ProduceResponse,
) -> dict[TopicPartition, PartitionProduceResponse]:
    return {
        TopicPartition(TopicName(topic.name), PartitionIndex(one.index)): one
        for topic in answer.responses
        for one in topic.partition_responses
    }
