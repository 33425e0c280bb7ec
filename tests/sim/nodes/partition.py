"""One partition of the data topic, as its clients see it."""

from collections.abc import Callable, Sequence

from penstock.model.ids import NO_END, UNKNOWN_END, PartitionId
from penstock.replication.replica import Replica
from tests.sim.machine.world import World
from tests.sim.nodes.node import SimulatedNode
from tests.sim.replicas.clients import Producer
from tests.sim.replicas.history import History, require


class DataPartition:
    def __init__(
        self,
        world: World,
        nodes: Sequence[SimulatedNode],
        key: PartitionId,
        history_of: Callable[[PartitionId], History],
    ) -> None:
        self.world = world
        self._nodes = nodes
        # What nodes find their replica by.
        self.partition = key
        self._history_of = history_of
        self.producers: list[Producer] = []

    @property
    def history(self) -> History:
        return self._history_of(self.partition)

    def leader(self) -> SimulatedNode | None:
        """Anyone who takes itself for the leader, even one that is cut off."""
        leading = [node for node in self._nodes if node.leads(self.partition)]
        return self.world.random.choice(leading) if leading else None

    def some_leader(self) -> SimulatedNode | None:
        """As `leader`, else anybody."""
        node = self.leader()
        running = [each for each in self._nodes if each.replica(self.partition) is not None]
        return node or (self.world.random.choice(running) if running else None)

    def require_copies(self, replica: Replica, offset: int) -> None:
        """What is acknowledged at this moment lies on as many disks as the topic asks for, or as
        there are voters. What is held by anyone who does not run, or not yet, is not known; nor
        is what a disk has lost since it was written, of which a leader hears later."""
        index = replica._log.index_before(offset + 1)  # type: ignore[arg-type]
        voters = {voter.node: voter for voter in replica.membership.voters}
        holders, unknown = [], 0
        for node in self._nodes:
            other = node.replica(self.partition)
            if other is None:
                unknown += not node.is_registered or node.opens(self.partition)
            elif other.stopped_because is not None:
                unknown += 1
            elif other._node.stable_index >= index:
                holders.append(other.id)
            else:
                is_replaced = voters.get(node.node, other.id) != other.id
                unknown += is_replaced or _has_lost(other, index)
        wanted = min(replica.config.min_insync_replicas, len(replica.membership.voters))
        require(
            len(holders) + unknown >= wanted,
            f"{replica.id} acknowledged offset {offset}, and of {wanted} disks only {holders} hold "
            f"it, with {unknown} that do not run",
        )


def _has_lost(replica: Replica, index: int) -> bool:
    """Whether it held the entry until its disk damaged it."""
    lost = replica._log.doubt.lost
    return lost != NO_END and (lost == UNKNOWN_END or lost.index >= index)
