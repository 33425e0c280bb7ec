"""The Raft group of the cluster's metadata: its name, its log's settings, and who belongs to it.

Every broker is a member, because every broker answers from its own copy; few of them vote.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.cluster.state import ClusterState
from penstock.cluster.topic_names import CLUSTER_METADATA
from penstock.model.ids import (
    PartitionId,
    PartitionIndex,
    ReplicaId,
    TopicId,
    TopicPartition,
)
from penstock.model.topic_config import FOREVER, TopicConfig

METADATA_PARTITION = TopicPartition(CLUSTER_METADATA, PartitionIndex(0))
# Kafka reserves this id for the metadata log, so no topic can ever have it.
METADATA_TOPIC_ID = TopicId(UUID(int=1))
METADATA_KEY = PartitionId(METADATA_TOPIC_ID, PartitionIndex(0))
METADATA_CONFIG = TopicConfig(
    cleanup_delete=False,
    cleanup_compact=True,
    retention_ms=FOREVER,
    segment_bytes=8 * 1024 * 1024,
    # A node may be away for any time and still must hear that a topic is gone.
    delete_retention_ms=2**63 - 1,
)
# More voters only make each commit wait for more disks.
VOTERS_MAX = 5


class Members(NamedTuple):
    voters: list[ReplicaId]
    learners: list[ReplicaId]


def metadata_members(state: ClusterState, founders: Sequence[ReplicaId], own: ReplicaId) -> Members:
    """Who shall belong to the group: founders vote before others, low numbers before high ones.

    The asker comes first among the voters, since the first one is to lead: who has become the
    controller stays it. Of its own directory it knows before it has registered.
    """
    members = {broker.id: broker.replica_id for broker in state.brokers.values()}
    for founder in founders:
        # A founder that has not registered yet is a member all the same.
        if founder.node not in members and founder.node not in state.removed_brokers:
            members[founder.node] = founder
    if own.node in members:
        members[own.node] = own
    founding = {founder.node for founder in founders}
    ranked = sorted(members, key=lambda n: (state.is_drained(n), n not in founding, n))
    voting = [node for node in ranked[:VOTERS_MAX] if not state.is_drained(node)] or ranked[:1]
    voting.sort(key=lambda node: (node != own.node, node))
    learning = sorted(node for node in members if node not in voting)
    return Members([members[n] for n in voting], [members[n] for n in learning])
