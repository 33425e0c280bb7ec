"""Several nodes in one process, each with its own disk, and a network of function calls between
them that tests can cut."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, PartitionId, ReplicaId
from penstock.model.topic_config import TopicConfig
from penstock.raft.entries import Entry, EntryKind
from penstock.raft.membership import Membership
from penstock.raft.messages import AppendRequest, Message
from penstock.replication.entry_codec import decode_membership, encode_membership
from penstock.replication.group_member import GroupMember
from penstock.replication.replica import Replica
from tests.unit.clocks import ManualClock
from tests.waiting import until

from .rig import NEVER_LATE_S, TICK_S, TOPIC_ID, Node


class Line:
    """One node's way out: each message arrives in a turn of its own, in order, or is lost."""

    def __init__(self, network: "Network") -> None:
        self._network = network
        self.number = 0

    def send(self, key: PartitionId, messages: Sequence[Message]) -> None:
        loop = asyncio.get_running_loop()
        for message in messages:
            loop.call_soon(self._network.deliver, self.number, key, message)

    def has_room(self, to: ReplicaId) -> bool:
        return to.node not in self._network.full

    def announce(self, replica: GroupMember) -> None:
        self._network.announced += 1


class Network:
    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        # Pairs (from, to) between which nothing passes.
        self.cut: set[tuple[int, int]] = set()
        # Nodes that take no entries for now.
        self.full: set[int] = set()
        self.announced = 0
        self.delivered: list[Message] = []

    def isolate(self, number: int) -> None:
        for other in self.nodes:
            self.cut |= {(number, other), (other, number)}

    def heal(self) -> None:
        self.cut.clear()

    def passes(self, sender: int, to: ReplicaId) -> bool:
        node = self.nodes.get(to.node)
        return node is not None and node.id == to and (sender, int(to.node)) not in self.cut

    def deliver(self, sender: int, key: PartitionId, message: Message) -> None:
        if not self.passes(sender, message.to):
            return
        self.delivered.append(message)
        replica = self.nodes[message.to.node].replicas.get(key)
        if replica is not None:
            replica.step(_copied(message))

    def beat(self) -> None:
        """One tick everywhere, and the heartbeats that nodes exchange for their groups."""
        for node in list(self.nodes.values()):
            node.tick()
            for key, replica in list(node.replicas.items()):
                if replica.is_leader:
                    self._beat(node.id, key, replica)

    def _beat(self, own: ReplicaId, key: PartitionId, leader: Replica) -> None:
        for member in sorted(leader.membership.members - {own}):
            if not self.passes(own.node, member):
                continue
            follower = self.nodes[member.node].replicas.get(key)
            if follower is None:
                continue
            accepted = follower.heartbeat_received(own, leader.term)
            if (int(member.node), int(own.node)) in self.cut:
                continue
            if accepted:
                leader.heartbeat_acknowledged(member, leader.term)
            else:
                leader.heartbeat_refused(member, leader.term)


def _copied(message: Message) -> Message:
    """As after a way over the wire: nothing is shared with the sender."""
    if isinstance(message, AppendRequest):
        return message._replace(entries=tuple(_copied_entry(entry) for entry in message.entries))
    return message


def _copied_entry(entry: Entry) -> Entry:
    payload = entry.payload
    if entry.kind is EntryKind.MEMBERSHIP:
        assert isinstance(payload, Membership)
        return entry._replace(payload=decode_membership(encode_membership(payload)))
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return entry._replace(payload=bytes(payload))
    return entry


class Group:
    """The replicas of one partition on the nodes of a network."""

    def __init__(
        self,
        path: Path,
        config: TopicConfig | None = None,
        disk_timeout_s: float = NEVER_LATE_S,
    ) -> None:
        self._path = path
        self._disk_timeout_s = disk_timeout_s
        self.config = config or TopicConfig()
        self.network = Network()
        self.clock = ManualClock()
        self.founders: list[ReplicaId] = []
        self._ticker: asyncio.TimerHandle | None = None

    def start_node(self, number: int, directory: str = "") -> Node:
        line = Line(self.network)
        line.number = number
        path = self._path / f"node-{number}{directory}"
        node = Node(
            path,
            number=number,
            outbound=line,
            clock=self.clock,
            disk_timeout_s=self._disk_timeout_s,
        )
        self.network.nodes[number] = node
        return node

    async def start(self, numbers: Sequence[int]) -> None:
        nodes = [self.start_node(number) for number in numbers]
        self.founders = [node.id for node in nodes]
        for node in nodes:
            await self.open(node)
        self._tick()

    async def open(self, node: Node) -> Replica:
        return await node.make(self.config, founders=self.founders)

    def _tick(self) -> None:
        # Time stands still while a disk works: however slow it is, it is quick compared with an
        # election time-out, as it is where a tick takes twenty times as long.
        if not any(node.is_writing for node in self.network.nodes.values()):
            self.network.beat()
        self._ticker = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def replica(self, number: int) -> Replica:
        (replica,) = self.network.nodes[number].replicas.values()
        return replica

    @property
    def replicas(self) -> list[Replica]:
        nodes = self.network.nodes.values()
        return [replica for node in nodes for replica in node.replicas.values()]

    async def leader(self) -> Replica:
        """The leader of the highest term, once it is settled."""
        await until(lambda: any(replica.is_settled for replica in self.replicas))
        return max(
            (replica for replica in self.replicas if replica.is_settled),
            key=lambda replica: replica.term,
        )

    async def crash(self, number: int) -> None:
        """The process dies: nothing that it has not written comes any more."""
        node = self.network.nodes.pop(number)
        for replica in node.replicas.values():
            replica._consensus.end()
            # Anyone who waits sees its connection break.
            replica._leave(Refused(Reason.NOT_LEADER_OR_FOLLOWER, "the process died"))
        node.crash()
        for replica in self.replicas:
            replica.unreachable(BrokerId(number))
        await asyncio.sleep(0)

    async def stop(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        for node in self.network.nodes.values():
            node.faults.writes_go_on.set()
            await node.stop()


@asynccontextmanager
async def group_of(
    path: Path,
    *numbers: int,
    config: TopicConfig | None = None,
    disk_timeout_s: float = NEVER_LATE_S,
) -> AsyncIterator[Group]:
    group = Group(path, config, disk_timeout_s)
    await group.start(numbers)
    try:
        yield group
    finally:
        await group.stop()


def log_bytes(replica: Replica) -> list[tuple[int, int, int, bytes]]:
    """Every entry of a replica's log: first and last index, term, bytes."""
    log = replica._log
    if log.last_index < log.first_index:
        return []
    entries = log.entries(log.first_index, log.last_index + 1, 1 << 30)  # type: ignore[arg-type]
    return [(entry.first_index, entry.index, entry.term, entry.batch) for entry in entries]


__all__ = ["TOPIC_ID", "Group", "group_of", "log_bytes"]
