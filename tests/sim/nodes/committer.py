"""A simulated consumer group that commits offsets: what was acknowledged is never forgotten."""

from collections.abc import Sequence

from penstock.groups.commands import CommitOffsets, OffsetToCommit
from penstock.model.errors import Refused
from penstock.model.ids import GroupId, TopicName
from tests.sim.machine.world import World
from tests.sim.nodes.node import SimulatedNode

ANSWER_S_MAX = 3.0
GROUP = GroupId("readers")


class Committer:
    """One commit after the other, each greater than the one before."""

    def __init__(self, world: World, nodes: Sequence[SimulatedNode], topic: str) -> None:
        self._world = world
        self._nodes = nodes
        self._topic = TopicName(topic)
        self._number = 0
        self._is_waiting = False
        self.acknowledged = 0
        self.found: int | None = None

    @property
    def asked(self) -> int:
        return self._number

    def act(self) -> None:
        node = self._choose()
        if self._is_waiting or node is None:
            return
        self._number += 1
        number = self._number
        self._is_waiting = True
        assert node.machine.process is not None
        node.machine.process.spawn(self._commit(node, number))
        self._world.after(ANSWER_S_MAX, lambda: self._answered(number, False))

    def _choose(self) -> SimulatedNode | None:
        nodes = [node for node in self._nodes if node.is_responsive]
        return self._world.random.choice(nodes) if nodes else None

    async def _commit(self, node: SimulatedNode, number: int) -> None:
        assert node.server is not None
        offset = OffsetToCommit(topic=self._topic, partition=0, offset=number)
        command = CommitOffsets(group_id=GROUP, offsets=(offset,))
        try:
            is_done = await node.server.services.groups.commit_offsets(command) == [None]
        except Refused:
            is_done = False
        self._world.after(0.001, lambda: self._answered(number, is_done))

    def _answered(self, number: int, is_done: bool) -> None:
        if number == self._number:
            self._is_waiting = False
            if is_done:
                self.acknowledged = number

    def look(self) -> None:
        """Asks for the offset; `found` is set once somebody knew."""
        node = self._choose()
        if node is not None and node.machine.process is not None:
            node.machine.process.spawn(self._fetch(node))

    async def _fetch(self, node: SimulatedNode) -> None:
        assert node.server is not None
        try:
            fetched = await node.server.services.groups.fetch_offsets(GROUP, None)
        except Refused:
            return
        committed = [item.committed for topic in fetched for item in topic.offsets]
        self.found = max([item.offset for item in committed if item is not None], default=0)
