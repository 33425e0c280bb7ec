"""Sends consumers to followers in their own rack (KIP-392), as Kafka's RackAwareReplicaSelector."""

from collections.abc import Mapping
from typing import Protocol

from penstock.cluster.brokers import Broker
from penstock.model.ids import BrokerId, ReplicaId
from penstock.replication.replica import Replica


class Brokers(Protocol):
    """Replaced when it changes, never changed."""

    @property
    def brokers(self) -> Mapping[BrokerId, Broker]: ...


class Peers(Protocol):
    def reaches(self, replica: ReplicaId, /) -> bool: ...


class RackAwareSelector:
    def __init__(self, cluster: Brokers, peers: Peers) -> None:
        self._cluster = cluster
        self._peers = peers
        self._known: Mapping[BrokerId, Broker] = {}
        self._racks: dict[str, set[BrokerId]] = {}

    def select(self, leader: Replica, rack: str, offset: int) -> BrokerId | None:
        """Of the followers in the rack that hold what comes before the offset the one that is
        furthest; None if there is none, or if the leader is in the rack itself."""
        nearby = self._in_rack(rack)
        if not nearby or leader.id.node in nearby:
            return None
        ends = leader.followers_with(offset)
        able = [each for each in ends if each.node in nearby and self._peers.reaches(each)]
        best = max(able, key=lambda each: (ends[each], each.node), default=None)
        return None if best is None else best.node

    def _in_rack(self, rack: str) -> set[BrokerId]:
        brokers = self._cluster.brokers
        if brokers is not self._known:
            self._known, self._racks = brokers, {}
            for broker in brokers.values():
                if broker.rack is not None:
                    self._racks.setdefault(broker.rack, set()).add(broker.id)
        return self._racks.get(rack, set())
