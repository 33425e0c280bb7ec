"""A simulated consumer group that commits offsets and deletes them: what was acknowledged is never
forgotten, and what was deleted does not come back.

A client that gives up on a commit does not take it back: it may still be carried out, after later
ones. So an acknowledged offset may be replaced by an older one, but only by one that was still
under way when the acknowledged one was asked for. Deletions, of one offset or of the whole group,
are changes like commits; they leave no offset behind.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from penstock.broker.groups import Groups
from penstock.groups.commands import CommitOffsets, OffsetToCommit
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, TopicName
from penstock.replication.replica import Replica
from tests.sim.linearizability import NEVER
from tests.sim.machine.world import World
from tests.sim.nodes.node import SimulatedNode
from tests.sim.nodes.onlooker import doubtful_leader, leaders
from tests.sim.replicas.history import require

ANSWER_S_MAX = 3.0
GROUP = GroupId("readers")
DELETION_CHANCE = 0.15
# Whether a coordinator makes sure that it still is one before it tells an offset. If so, every
# answer is judged, and otherwise the last ones, when all agree who coordinates.
FETCHES_ARE_CONFIRMED = True


class Commits:
    """The changes of one partition's offset; what a commit leaves behind is its own number."""

    def __init__(self) -> None:
        self.asked = 0
        self.acknowledged = 0
        self._asked_at: dict[int, float] = {0: -1.0}
        # When a change was over, whatever became of it; 0 is what a group has before its first.
        self._over_at = {0: -1.0}
        # The changes that leave nothing behind.
        self._deletions = [0]

    def ask(self, now: float, *, deletes: bool = False) -> int:
        self.asked += 1
        self._asked_at[self.asked] = now
        if deletes:
            self._deletions.append(self.asked)
        return self.asked

    def over(self, number: int, now: float) -> None:
        self._over_at[number] = now

    def acknowledge(self, number: int) -> None:
        self.acknowledged = max(number, self.acknowledged)

    def explain(self, found: int, acknowledged: int) -> bool:
        """Whether a sequence of the changes, each within its own time, ends with what was found;
        one that was acknowledged before is among them."""
        if found:
            return self._may_be_last(found, acknowledged)
        return any(self._may_be_last(number, acknowledged) for number in self._deletions)

    def _may_be_last(self, number: int, acknowledged: int) -> bool:
        if number >= acknowledged:
            return number <= self.asked
        return self._over_at.get(number, NEVER) >= self._asked_at[acknowledged]


# By partition the number of a change.
_Asked = Mapping[int, int]


class Committer:
    """One change after the other."""

    def __init__(
        self,
        world: World,
        nodes: Sequence[SimulatedNode],
        topic: str,
        partitions: int,
        deletion_chance: float = DELETION_CHANCE,
    ) -> None:
        self._world = world
        self._nodes = nodes
        self._topic = TopicName(topic)
        self._commits = [Commits() for _ in range(partitions)]
        self._deletion_chance = deletion_chance
        self._requests = 0
        self._is_waiting = False
        # By partition, as somebody was told last.
        self.found: dict[int, int] | None = None
        self.deletions = 0

    @property
    def acknowledged(self) -> int:
        return sum(commits.acknowledged for commits in self._commits)

    @property
    def is_explained(self) -> bool:
        """Whether what was found last may be what is stored."""
        return self.found is not None and self._explains(self.found, self._all_acknowledged())

    def _all_acknowledged(self) -> list[int]:
        return [commits.acknowledged for commits in self._commits]

    def _explains(self, found: Mapping[int, int], acknowledged: Iterable[int]) -> bool:
        return all(
            commits.explain(found.get(partition, 0), known)
            for partition, (commits, known) in enumerate(
                zip(self._commits, acknowledged, strict=True)
            )
        )

    def act(self) -> None:
        node = self._choose()
        if self._is_waiting or node is None:
            return
        random = self._world.random
        change: Callable[[Groups, _Asked], Awaitable[list[Reason | None]]] = self._commit
        partitions: Iterable[int] = (random.randrange(len(self._commits)),)
        deletes = random.random() < self._deletion_chance
        if deletes:
            # Of two the older one: what it does not know is not deleted because of that.
            node = next(iter(leaders(self._nodes, _log_of_group)), node)
            change = self._delete_offset
            if random.random() < 0.5:
                change, partitions = self._delete_group, range(len(self._commits))
        now = self._world.now
        asked = {each: self._commits[each].ask(now, deletes=deletes) for each in partitions}
        self._is_waiting = True
        self._requests = number = self._requests + 1
        give_up = partial(self._answered, number, {})
        node.ask(self._ask(node, change, asked, number), give_up)
        self._world.after(ANSWER_S_MAX, give_up)

    def _choose(self) -> SimulatedNode | None:
        nodes = [node for node in self._nodes if node.is_responsive]
        return self._world.random.choice(nodes) if nodes else None

    async def _ask(
        self,
        node: SimulatedNode,
        change: Callable[[Groups, _Asked], Awaitable[list[Reason | None]]],
        asked: _Asked,
        number: int,
    ) -> None:
        assert node.server is not None
        done: _Asked = {}
        try:
            if await change(node.server.services.groups, asked) == [None]:
                done = asked
                self.deletions += change != self._commit
        except Refused:
            pass
        finally:
            # With the end of the process it is over too.
            for partition, each in asked.items():
                self._commits[partition].over(each, self._world.now)
        self._world.after(0.001, self._answered, number, done)

    async def _commit(self, groups: Groups, asked: _Asked) -> list[Reason | None]:
        offsets = [OffsetToCommit(self._topic, partition, asked[partition]) for partition in asked]
        return await groups.commit_offsets(CommitOffsets(group_id=GROUP, offsets=tuple(offsets)))

    async def _delete_offset(self, groups: Groups, asked: _Asked) -> list[Reason | None]:
        return await groups.delete_offsets(GROUP, [(self._topic, each) for each in asked])

    async def _delete_group(self, groups: Groups, _: _Asked) -> list[Reason | None]:
        return await groups.delete([GROUP])

    def _answered(self, number: int, done: _Asked) -> None:
        if number == self._requests:
            self._is_waiting = False
        for partition, each in done.items():
            self._commits[partition].acknowledge(each)

    def look(self) -> None:
        """Asks for the offset; `found` is set once somebody knew."""
        node = self._choose()
        if node is not None:
            node.ask(self._fetch(node, self._all_acknowledged()))

    def look_in_doubt(self) -> None:
        """Asks anyone who takes itself for the coordinator, and of two the older one."""
        if FETCHES_ARE_CONFIRMED:
            node = doubtful_leader(self._world, self._nodes, _log_of_group)
            if node is not None:
                node.ask(self._fetch(node, self._all_acknowledged()))

    async def _fetch(self, node: SimulatedNode, acknowledged: Sequence[int]) -> None:
        found = await fetch_offsets(node, GROUP)
        if found is None:
            return
        self.found = found
        require(
            not FETCHES_ARE_CONFIRMED or self._explains(found, acknowledged),
            f"node {node.node} told the offsets {found} after {acknowledged} were acknowledged",
        )


def _log_of_group(node: SimulatedNode) -> Replica | None:
    return node.group_log(GROUP)


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
