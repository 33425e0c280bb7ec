"""A simulated consumer group that commits offsets: what was acknowledged is never forgotten.

A client that gives up on a commit does not take it back: it may still be carried out, after later
ones. So an acknowledged offset may be replaced by an older one, but only by one that was still
under way when the acknowledged one was asked for.
"""

from collections.abc import Sequence

from penstock.groups.commands import CommitOffsets, OffsetToCommit
from penstock.model.errors import Refused
from penstock.model.ids import GroupId, TopicName
from tests.sim.linearizability import NEVER
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
        self._asked_at: dict[int, float] = {}
        # When a commit was over, whatever became of it; 0 is what a group has before its first.
        self._over_at = {0: -1.0}
        self.acknowledged = 0
        self.found: int | None = None

    @property
    def asked(self) -> int:
        return self._number

    @property
    def is_explained(self) -> bool:
        """Whether a sequence of the commits, each within its own time, ends with what was found."""
        if self.found is None or self.found >= self.acknowledged:
            return self.found is not None
        return self._over_at.get(self.found, NEVER) >= self._asked_at[self.acknowledged]

    def act(self) -> None:
        node = self._choose()
        if self._is_waiting or node is None:
            return
        self._number += 1
        number = self._number
        self._asked_at[number] = self._world.now
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
        is_done = False
        try:
            is_done = await node.server.services.groups.commit_offsets(command) == [None]
        except Refused:
            pass
        finally:
            # With the end of the process it is over too.
            self._over_at[number] = self._world.now
        self._world.after(0.001, lambda: self._answered(number, is_done))

    def _answered(self, number: int, is_done: bool) -> None:
        if number == self._number:
            self._is_waiting = False
        if is_done:
            self.acknowledged = max(number, self.acknowledged)

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
