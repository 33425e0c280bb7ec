"""DescribeProducers, version 0: the idempotent producers that a partition remembers.

Any broker that holds a replica answers, as on Kafka; followers may be a little behind. There are
no transactions yet, so no producer has a coordinator's epoch or an open transaction.
"""

from penstock.broker.producers import Producer, Producers
from penstock.broker.topics import check_topic_name
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Refused
from penstock.model.ids import TopicName
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

_NONE = -1


def handle(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    producers = call.services.producers
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(producers, TopicName(topic.name), index)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(producers: Producers, topic: TopicName, index: int) -> PartitionResponse:
    try:
        check_topic_name(topic)
        known = producers.describe(topic, index)
    except Refused as refused:
        return PartitionResponse(
            partition_index=index, error_code=error_code(refused), error_message=refused.detail
        )
    states = [_state(producer_id, producer) for producer_id, producer in known]
    return PartitionResponse(partition_index=index, active_producers=states)


def _state(producer_id: int, producer: Producer) -> ProducerState:
    last = producer.batches[-1]
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=last.last_sequence,
        last_timestamp=last.timestamp_ms,
        coordinator_epoch=_NONE,
        current_txn_start_offset=_NONE,
    )


API = Api(
    key=ApiKey.DESCRIBE_PRODUCERS,
    versions=(0, 0),
    request=DescribeProducersRequest,
    response=DescribeProducersResponse,
    handle=handle,
)
