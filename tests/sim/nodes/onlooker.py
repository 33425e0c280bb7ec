"""A simulated reader of the metadata: it asks any leader, and of two the one with the old term.

A leader that was cut off does not know at once that there is another one. What it says must be true
all the same.
"""

from collections.abc import Callable, Sequence

from penstock.model.errors import Refused
from penstock.replication.replica import Replica
from tests.sim.linearizability import Operation
from tests.sim.machine.world import World
from tests.sim.nodes.node import SimulatedNode

# Of the moments at which nobody's leadership is in question, so few are looked at.
QUIET_CHANCE = 0.05


ReplicaAt = Callable[[SimulatedNode], Replica | None]


def leaders(nodes: Sequence[SimulatedNode], replica_at: ReplicaAt) -> list[SimulatedNode]:
    """Those that take themselves for the leader, the one with the oldest term first."""
    leading = [
        (replica.term, node.node, node)
        for node in nodes
        if node.is_responsive and (replica := replica_at(node)) is not None and replica.is_settled
    ]
    return [node for _, _, node in sorted(leading)]


def doubtful_leader(
    world: World, nodes: Sequence[SimulatedNode], replica_at: ReplicaAt
) -> SimulatedNode | None:
    """The oldest of them; mostly nobody while there is only one."""
    leading = leaders(nodes, replica_at)
    if not leading or (len(leading) == 1 and world.random.random() >= QUIET_CHANCE):
        return None
    return leading[0]


class Onlooker:
    def __init__(self, world: World, nodes: Sequence[SimulatedNode], names: Sequence[str]) -> None:
        self._world = world
        self._nodes = nodes
        self._names = names
        self.history: list[Operation] = []

    def act(self) -> None:
        node = doubtful_leader(self._world, self._nodes, SimulatedNode.metadata)
        if node is not None:
            node.ask(self._read(node))

    async def _read(self, node: SimulatedNode) -> None:
        assert node.server is not None
        called, cluster = self._world.now, node.server.cluster
        try:
            await cluster.catch_up()
        except Refused:
            return
        for name in self._names:
            topic = cluster.topic(name)
            count = 0 if topic is None else topic.partitions
            self.history.append(Operation(called, self._world.now, ("read", name, 0), count))
