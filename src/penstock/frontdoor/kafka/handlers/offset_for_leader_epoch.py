"""OffsetForLeaderEpoch, versions 0 to 4: where a leader epoch ended (KIP-101, KIP-320).

Consumers ask after a change of leader whether what they read is still there. Nothing past the high
watermark was ever read, so an epoch that has not ended yet ends there for them.
"""

from penstock.broker.offsets import Offsets
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Refused
from penstock.model.ids import TopicName
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    offsets = call.services.offsets
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _answer(offsets, TopicName(topic.topic), partition)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _answer(offsets: Offsets, topic: TopicName, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        term, end_offset = offsets.end_of_term(
            topic, asked.partition, asked.leader_epoch, term=asked.current_leader_epoch
        )
    except Refused as refused:
        return EpochEndOffset(partition=asked.partition, error_code=error_code(refused))
    return EpochEndOffset(partition=asked.partition, leader_epoch=term, end_offset=end_offset)


API = Api(
    key=ApiKey.OFFSET_FOR_LEADER_EPOCH,
    versions=(0, 4),
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
    handle=handle,
)
