"""Exchanges that are connected in memory, and a replica that notes what it is told."""

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

from penstock.model.endpoint import Endpoint
from penstock.model.ids import (
    BrokerId,
    DirectoryId,
    PartitionId,
    PartitionIndex,
    ReplicaId,
    Term,
    TopicId,
)
from penstock.model.peers import NO_CLUSTER, PEER_VERSION, PeerHello
from penstock.net.occasional_log import OccasionalLog
from penstock.raft.messages import Message
from penstock.replication.exchange import Exchange
from penstock.replication.peer_network import PeerListener, Piece
from tests.unit.clocks import ManualClock


def replica_id(node: int) -> ReplicaId:
    return ReplicaId(BrokerId(node), DirectoryId(f"directory-{node}"))


def group(number: int) -> PartitionId:
    return PartitionId(TopicId(UUID(int=77)), PartitionIndex(number))


class NotingReplica:
    """Follows the node that `follows` names, in `term`."""

    def __init__(self, number: int) -> None:
        self.key = group(number)
        self.is_leader = self.is_settled = False
        self.term = Term(0)
        self.follows: ReplicaId | None = None
        self.in_sync_nodes: list[BrokerId] = []
        self.steps: list[Message] = []
        self.ticks = 0
        self.may_rest = False
        self.heard = 0
        self.acknowledged: list[tuple[int, int]] = []
        self.refused: list[tuple[int, int]] = []
        self.lost: list[str] = []

    def lead(self, term: int, in_sync: Sequence[int] = ()) -> None:
        self.is_leader, self.term, self.follows = True, Term(term), None
        self.is_settled = True
        self.in_sync_nodes = [BrokerId(node) for node in in_sync]

    def follow(self, node: int, term: int) -> None:
        self.is_leader, self.term, self.follows = False, Term(term), replica_id(node)
        self.is_settled = False

    def in_sync(self) -> list[BrokerId]:
        return self.in_sync_nodes

    def step(self, message: Message) -> None:
        self.steps.append(message)

    def tick(self) -> bool:
        self.ticks += 1
        return self.may_rest

    def heartbeat_received(self, sender: ReplicaId, term: Term) -> bool:
        is_followed = self.follows == sender and self.term == term
        self.heard += is_followed
        return is_followed

    def heartbeat_acknowledged(self, sender: ReplicaId, term: Term) -> None:
        self.acknowledged.append((sender.node, term))

    def heartbeat_refused(self, sender: ReplicaId, term: Term) -> None:
        self.refused.append((sender.node, term))

    def unreachable(self, node: BrokerId) -> None:
        self.lost.append(f"unreachable {node}")

    def leader_lost(self, node: BrokerId) -> None:
        self.lost.append(f"dead {node}")


class Wire:
    """Carries frames between the exchanges when `settle` is awaited, and counts them."""

    def __init__(self) -> None:
        self.networks: dict[int, MemoryNetwork] = {}
        self.frames = 0
        self.queue: list[tuple[int, int, bytes]] = []

    def exchange(self, node: int) -> Exchange:
        network = MemoryNetwork(self, node)
        log = OccasionalLog(ManualClock())
        exchange = Exchange(own=replica_id(node), network=network, log=log)
        self.networks[node] = network
        network.listener = exchange
        return exchange

    def connect(self, one: int, other: int, cluster: str = "blue") -> None:
        for here, there in ((one, other), (other, one)):
            directory = replica_id(there).directory
            endpoint = Endpoint("127.0.0.1", there)
            hello = PeerHello(PEER_VERSION, cluster, BrokerId(there), directory, 1, endpoint)
            self.networks[here].connected.add(there)
            self.networks[here].listener.connected(hello)

    def cut(self, one: int, other: int, *, process_died: bool = False) -> None:
        self.queue = [item for item in self.queue if {item[0], item[1]} != {one, other}]
        for here, there in ((one, other), (other, one)):
            if there in self.networks[here].connected:
                self.networks[here].connected.discard(there)
                self.networks[here].listener.disconnected(BrokerId(there), process_died=False)
        if process_died:
            self.networks[one].listener.disconnected(BrokerId(other), process_died=True)

    async def settle(self) -> None:
        """Until nobody has anything more to say."""
        for _ in range(50):
            await asyncio.sleep(0)
            queue, self.queue = self.queue, []
            for sender, receiver, frame in queue:
                if sender in self.networks[receiver].connected:
                    self.networks[receiver].listener.received(BrokerId(sender), memoryview(frame))
        assert not self.queue


class MemoryNetwork:
    listener: PeerListener

    def __init__(self, wire: Wire, node: int) -> None:
        self._wire = wire
        self._node = node
        self.connected: set[int] = set()
        self.queued: dict[int, int] = {}
        self.cluster = NO_CLUSTER
        self.dropped: list[tuple[int, str]] = []

    def start(self, hello: PeerHello, listener: PeerListener) -> None:
        raise AssertionError("connected by the test")

    def set_cluster(self, cluster_id: str) -> None:
        self.cluster = cluster_id

    def set_peers(self, peers: Mapping[BrokerId, Endpoint]) -> None:
        raise AssertionError("connected by the test")

    def meet(self, endpoints: Sequence[Endpoint]) -> None:
        raise AssertionError("connected by the test")

    def send(self, node: BrokerId, pieces: Sequence[Piece]) -> bool:
        if node not in self.connected:
            return False
        self._wire.frames += 1
        self._wire.queue.append((self._node, node, b"".join(pieces)))
        return True

    def queued_bytes(self, node: BrokerId) -> int:
        return self.queued.get(node, 0)

    def drop(self, node: BrokerId, why: str) -> None:
        self.dropped.append((node, why))
        self._wire.cut(self._node, node)
