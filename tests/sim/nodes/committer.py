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
from tests.sim.nodes.onlooker import doubtful_leader
from tests.sim.replicas.history import require

ANSWER_S_MAX = 3.0
GROUP = GroupId("readers")
# Whether a coordinator makes sure that it still is one before it tells an offset. If so, every
# answer is judged, and otherwise the last ones, when all agree who coordinates.
FETCHES_ARE_CONFIRMED = True


class Commits:
    """The commits of one partition's offset, each greater than the one before."""

    def __init__(self) -> None:
        self.asked = 0
        self.acknowledged = 0
        self._asked_at: dict[int, float] = {0: -1.0}
        # When a commit was over, whatever became of it; 0 is what a group has before its first.
        self._over_at = {0: -1.0}

    def ask(self, now: float) -> int:
        self.asked += 1
        self._asked_at[self.asked] = now
        return self.asked

    def over(self, number: int, now: float) -> None:
        self._over_at[number] = now

    def acknowledge(self, number: int) -> None:
        self.acknowledged = max(number, self.acknowledged)

    def explain(self, found: int, acknowledged: int) -> bool:
        """Whether a sequence of the commits, each within its own time, ends with what was found;
        one that was acknowledged before is among them."""
        if found >= acknowledged:
            return found <= self.asked
        return self._over_at.get(found, NEVER) >= self._asked_at[acknowledged]


class Committer:
    """One commit after the other."""

    def __init__(self, world: World, nodes: Sequence[SimulatedNode], topic: str) -> None:
        self._world = world
        self._nodes = nodes
        self._topic = TopicName(topic)
        self._commits = Commits()
        self._is_waiting = False
        self.found: int | None = None

    @property
    def asked(self) -> int:
        return self._commits.asked

    @property
    def acknowledged(self) -> int:
        return self._commits.acknowledged

    @property
    def is_explained(self) -> bool:
        """Whether what was found last may be what is stored."""
        return self.found is not None and self._commits.explain(self.found, self.acknowledged)

    def act(self) -> None:
        node = self._choose()
        if self._is_waiting or node is None:
            return
        number = self._commits.ask(self._world.now)
        self._is_waiting = True
        node.ask(self._commit(node, number))
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
            self._commits.over(number, self._world.now)
        self._world.after(0.001, lambda: self._answered(number, is_done))

    def _answered(self, number: int, is_done: bool) -> None:
        if number == self.asked:
            self._is_waiting = False
        if is_done:
            self._commits.acknowledge(number)

    def look(self) -> None:
        """Asks for the offset; `found` is set once somebody knew."""
        node = self._choose()
        if node is not None:
            node.ask(self._fetch(node, self.acknowledged))

    def look_in_doubt(self) -> None:
        """Asks whoever takes itself for the coordinator, and of two the older one."""
        if FETCHES_ARE_CONFIRMED:
            node = doubtful_leader(self._world, self._nodes, lambda node: node.group_log(GROUP))
            if node is not None:
                node.ask(self._fetch(node, self.acknowledged))

    async def _fetch(self, node: SimulatedNode, acknowledged: int) -> None:
        found = await fetch_offsets(node, GROUP)
        if found is None:
            return
        self.found = max(found.values(), default=0)
        require(
            not FETCHES_ARE_CONFIRMED or self._commits.explain(self.found, acknowledged),
            f"node {node.node} told offset {self.found} after {acknowledged} was acknowledged",
        )


async def fetch_offsets(node: SimulatedNode, group: GroupId) -> dict[int, int] | None:
    """By partition, of the only topic that there are any of; None if the node does not know."""
    assert node.server is not None
    try:
        fetched = await node.server.services.groups.fetch_offsets(group, None)
    except Refused:
        return None
    return {
        item.partition: item.committed.offset
        for topic in fetched
        for item in topic.offsets
        if item.committed is not None
    }
