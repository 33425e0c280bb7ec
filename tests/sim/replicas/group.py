"""One partition of a run: those who use it, what became of it, and what must hold of it."""

from collections.abc import Sequence

from penstock.replication.replica import Replica
from tests.sim.machine.world import World
from tests.sim.replicas.checks import Decoded, check_acknowledged, last_offsets, records_of
from tests.sim.replicas.clients import Consumer, Producer, Reader
from tests.sim.replicas.history import History, require
from tests.sim.replicas.node import SimulatedNode


class Group:
    def __init__(
        self, world: World, partition: int, history: History, *, copies_min: int, compacts: bool
    ) -> None:
        self._world = world
        self.partition = partition
        self.history = history
        self._copies_min = copies_min
        self._compacts = compacts
        self.nodes: Sequence[SimulatedNode] = ()
        self.producers: list[Producer] = []
        self.consumer = Consumer(self)
        self.reader = Reader(self)

    def add_producer(self, number: int, batches: int, padding: int) -> None:
        producer = Producer(self, number, batches, repeats_keys=self._compacts, padding=padding)
        self.producers.append(producer)

    @property
    def world(self) -> World:
        return self._world

    @property
    def acknowledged(self) -> int:
        return sum(len(producer.acknowledged) for producer in self.producers)

    @property
    def is_done(self) -> bool:
        return all(producer.is_done for producer in self.producers)

    def some_leader(self) -> SimulatedNode | None:
        """Anyone who takes itself for the leader, even one that is cut off; else anybody."""
        leading = [node for node in self.nodes if node.leads(self.partition)]
        running = [node for node in self.nodes if node.is_up and node.replicas]
        choices = leading or running
        return self._world.random.choice(choices) if choices else None

    def require_copies(self, replica: Replica, offset: int) -> None:
        """What is acknowledged at this moment lies on as many disks as the topic asks for, or as
        there are voters."""
        if offset < replica._log.base.offset:
            # Deleted already.
            return
        index = replica._log.index_before(offset + 1)  # type: ignore[arg-type]
        holders = [node for node in self.nodes if node.holds(self.partition, index)]
        wanted = min(self._copies_min, len(replica.membership.voters))
        require(
            len(holders) >= wanted,
            f"{replica.id} acknowledged offset {offset}, and of {wanted} disks only "
            f"{[str(node.id) for node in holders]} hold it",
        )

    # Once a run is over

    def settled_leader(self) -> SimulatedNode | None:
        for node in self.nodes:
            if node.leads(self.partition) and node.replicas[self.partition].is_settled:
                return node
        return None

    def is_equal(self) -> bool:
        """Whether clients are done and every member has all that its leader has."""
        leader = self.settled_leader()
        if leader is None or not self.is_done:
            return False
        replica = leader.replicas[self.partition]
        core = replica._node
        return (
            replica.is_reconciled
            and core.commit_index == core.last_index == replica._applied_index
            and all(self._equals(member, replica) for member in self._members(replica))
        )

    def _members(self, leader: Replica) -> list[SimulatedNode | None]:
        by_id = {node.id: node for node in self.nodes}
        return [by_id.get(member) for member in sorted(leader.membership.members)]

    def _equals(self, node: SimulatedNode | None, leader: Replica) -> bool:
        """Whether it runs, has what the leader has, and is wanted."""
        if node is None or not node.is_up or not node.replicas:
            return False
        replica = node.replicas[self.partition]
        return (
            replica.stopped_because is None
            and replica._applied_index == leader._applied_index
            and replica._node.last_index == leader._node.last_index
            and replica.log_start_offset == leader.log_start_offset
        )

    def check(self) -> None:
        leader = self.settled_leader()
        assert leader is not None
        voters, decoded = leader.replicas[self.partition].membership.voters, Decoded()
        last_of_key = last_offsets(self.producers) if self._compacts else None
        for node in self.nodes:
            if node.id in voters:
                replica = node.replicas[self.partition]
                records = records_of(replica, decoded)
                start = replica.log_start_offset
                require(
                    start == self.history.log_start,
                    f"the log of {node.id} begins at {start}, not at {self.history.log_start}",
                )
                for producer in self.producers:
                    check_acknowledged(producer, records, start, last_of_key=last_of_key)
