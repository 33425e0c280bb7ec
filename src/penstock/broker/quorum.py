"""Who holds the cluster's metadata: voters, observers, and how far each of them has come.

Only the leader of the metadata knows that. Another broker asks it over the peer connection, so
that a client can ask any of them.
"""

import json
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from penstock.broker.partitions import METADATA_PARTITION, Partitions
from penstock.cluster.coordinator import Cluster
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, ReplicaId
from penstock.replication.replica import Replica

DESCRIBE_CALL = "quorum.describe"
CALL_TIMEOUT_S = 5.0
METADATA_TOPIC = METADATA_PARTITION.topic

Handler = Callable[[BrokerId, bytes], Awaitable[bytes]]


class Calls(Protocol):
    """Calls between brokers."""

    def serve(self, method: str, handler: Handler, /) -> None: ...

    async def call(
        self, node: BrokerId, method: str, payload: bytes, timeout_s: float
    ) -> bytes: ...


class Member(NamedTuple):
    node: int
    directory: str
    log_end_offset: int
    is_voter: bool
    is_in_sync: bool


class QuorumView(NamedTuple):
    leader: int
    term: int
    high_watermark: int
    members: list[Member]


class Quorum:
    def __init__(self, *, cluster: Cluster, partitions: Partitions, exchange: Calls) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._exchange = exchange
        exchange.serve(DESCRIBE_CALL, self._serve)

    async def describe(self) -> QuorumView:
        """The metadata's group as its leader sees it; refused while nobody leads it."""
        replica = self._metadata()
        if replica.is_leader:
            return _view(replica)
        controller = self._cluster.controller_id
        if controller < 0 or controller == self._cluster.broker_id:
            raise Refused(Reason.NOT_LEADER_OR_FOLLOWER, "the metadata has no leader now")
        answer = await self._exchange.call(controller, DESCRIBE_CALL, b"", CALL_TIMEOUT_S)
        return _decoded(answer)

    async def _serve(self, _: BrokerId, __: bytes) -> bytes:
        replica = self._metadata()
        if not replica.is_leader:
            raise Refused(Reason.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the metadata")
        return json.dumps(_view(replica)).encode()

    def _metadata(self) -> Replica:
        replica = self._partitions.metadata
        if replica is None:
            raise Refused(Reason.NOT_LEADER_OR_FOLLOWER, "the metadata is not open yet")
        return replica


def _view(replica: Replica) -> QuorumView:
    progress = replica.progress()
    membership, in_sync = replica.membership, frozenset(replica.in_sync())
    members = [
        _member(who, progress.get(who, -1), who in membership.voters, who.node in in_sync)
        for who in sorted(membership.members)
    ]
    return QuorumView(replica.id.node, replica.term, replica.high_watermark, members)


def _member(who: ReplicaId, end: int, is_voter: bool, is_in_sync: bool) -> Member:
    return Member(who.node, str(who.directory), end, is_voter, is_in_sync)


def _decoded(answer: bytes) -> QuorumView:
    leader, term, high_watermark, members = json.loads(answer)
    return QuorumView(leader, term, high_watermark, [Member(*member) for member in members])
