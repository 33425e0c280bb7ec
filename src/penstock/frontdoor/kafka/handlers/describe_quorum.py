"""DescribeQuorum, versions 0 to 2: who holds the cluster's metadata, and how far each has come.

Only the partition 0 of __cluster_metadata can be asked for. Observers are the brokers that follow
without a vote. A broker that does not lead the metadata asks the one that does.

Deviations: instead of the times of a follower's last fetch and of when it had caught up, the time
of the answer is set for members in sync, and is -1 for the others.
"""

from base64 import urlsafe_b64decode
from uuid import UUID

from penstock.broker.quorum import METADATA_TOPIC, Member, QuorumView
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Refused
from penstock.model.ids import BrokerId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

LISTENER = "PLAINTEXT"
_UNKNOWN = -1


async def handle(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    try:
        view = await call.services.quorum.describe()
    except Refused as refused:
        return DescribeQuorumResponse(error_code=error_code(refused), error_message=refused.detail)
    topics = [
        TopicData(
            topic_name=topic.topic_name,
            partitions=[
                _partition(call, view, topic.topic_name, partition.partition_index)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DescribeQuorumResponse(error_message=None, topics=topics, nodes=_nodes(call, view))


def _partition(call: Call, view: QuorumView, topic: str, index: int) -> PartitionData:
    if topic != METADATA_TOPIC or index != 0:
        return PartitionData(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message="Only the cluster's metadata can be described.",
            leader_id=_UNKNOWN,
            leader_epoch=_UNKNOWN,
            high_watermark=_UNKNOWN,
        )
    now_ms = call.services.clock.now_ms()
    return PartitionData(
        partition_index=index,
        error_message=None,
        leader_id=view.leader,
        leader_epoch=view.term,
        high_watermark=view.high_watermark,
        current_voters=[_state(one, view, now_ms) for one in view.members if one.is_voter],
        observers=[_state(one, view, now_ms) for one in view.members if not one.is_voter],
    )


def _state(member: Member, view: QuorumView, now_ms: int) -> ReplicaState:
    caught_up_ms = now_ms if member.is_in_sync else _UNKNOWN
    return ReplicaState(
        replica_id=member.node,
        replica_directory_id=_directory_id(member.directory),
        log_end_offset=member.log_end_offset,
        last_fetch_timestamp=_UNKNOWN if member.node == view.leader else caught_up_ms,
        last_caught_up_timestamp=caught_up_ms,
    )


def _directory_id(directory: str) -> UUID:
    """The sixteen bytes behind the letters that name a directory."""
    return UUID(bytes=urlsafe_b64decode(directory + "=="))


def _nodes(call: Call, view: QuorumView) -> list[Node]:
    brokers = [call.services.leaderships.broker(BrokerId(member.node)) for member in view.members]
    return [
        Node(
            node_id=broker.id,
            listeners=[Listener(name=LISTENER, host=broker.kafka.host, port=broker.kafka.port)],
        )
        for broker in brokers
        if broker is not None
    ]


API = Api(
    key=ApiKey.DESCRIBE_QUORUM,
    versions=(0, 2),
    request=DescribeQuorumRequest,
    response=DescribeQuorumResponse,
    handle=handle,
)
