"""A simulated consumer group of Kafka's classic protocol: members join, sync, beat, commit, leave.

One generation's assignment is valid at a time: whoever is told one that is stored is told the same,
and once a later one is stored, nobody commits with an earlier one. A commit that was acknowledged
is what whoever asks next is told, unless a later one replaced it.
"""

from collections.abc import Awaitable, Callable, Sequence

from penstock.broker.groups import Groups
from penstock.groups.commands import (
    NO_MEMBER,
    CommitOffsets,
    Departure,
    Join,
    MemberProtocol,
    OffsetToCommit,
    Sync,
)
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicName
from tests.sim.machine.world import World
from tests.sim.nodes.committer import Commits, fetch_offsets
from tests.sim.nodes.node import SimulatedNode
from tests.sim.replicas.history import require

GROUP = GroupId("workers")
PROTOCOL_TYPE = "consumer"
PROTOCOL = "sticky"
SESSION_MS = 2_000
REBALANCE_MS = 1_500
# Longer than a rebalance: a client that gives up on one only makes it longer.
ANSWER_S_MAX = 4.0
BETWEEN_S = (0.1, 0.8)
# A member may be away for longer than its session, and then go on as if nothing had happened.
AWAY_S = (2.0, 4.0)
AWAY_CHANCE = 0.05
LEAVE_CHANCE = 0.05
# Who has lost its place, and joins without an id.
_UNKNOWN = frozenset({Reason.UNKNOWN_MEMBER_ID, Reason.FENCED_INSTANCE_ID})
_AGAIN = frozenset({Reason.ILLEGAL_GENERATION, Reason.REBALANCE_IN_PROGRESS})


class WorkGroup:
    """What all members together may see of their group."""

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic = TopicName(topic)
        self.partitions = partitions
        # By generation: the token of the only assignment of it that was ever told.
        self._told: dict[int, bytes] = {}
        self._newest_told = 0
        self.commits = [Commits() for _ in range(partitions)]
        self._tokens = 0
        self.found: dict[int, int] = {}
        self.acknowledged = self.fenced = 0

    @property
    def generations(self) -> int:
        return len(self._told)

    @property
    def newest(self) -> int:
        """The newest generation that a member was told the assignment of."""
        return self._newest_told

    def new_token(self) -> bytes:
        self._tokens += 1
        return b"%d" % self._tokens

    def is_explained(self) -> bool:
        """Whether what was found last may be what is stored."""
        return all(
            commits.explain(self.found.get(partition, 0), commits.acknowledged)
            for partition, commits in enumerate(self.commits)
        )

    async def look(self, node: SimulatedNode) -> None:
        found = await fetch_offsets(node, GROUP)
        if found is not None:
            self.found = found

    def told(self, generation: int, token: bytes) -> None:
        known = self._told.setdefault(generation, token)
        require(
            known == token,
            f"generation {generation} has the assignments {known!r} and {token!r}",
        )
        self._newest_told = max(self._newest_told, generation)


class GroupConsumer:
    """One member; one request at a time, to whoever coordinates the group or to anybody."""

    def __init__(
        self, world: World, nodes: Sequence[SimulatedNode], group: WorkGroup, number: int
    ) -> None:
        self._world = world
        self._nodes = nodes
        self._group = group
        self._name = f"worker-{number}"
        self._member_id = NO_MEMBER
        self._generation = -1
        self._owned: list[int] = []
        self._next: Callable[[Groups], Awaitable[None]] = self._join
        self._asked = 0
        self._act_later()

    def _act_later(self) -> None:
        random = self._world.random
        is_away = bool(self._owned) and random.random() < AWAY_CHANCE
        self._world.after(random.uniform(*(AWAY_S if is_away else BETWEEN_S)), self._act)

    def _act(self) -> None:
        node = self._coordinator()
        if node is None:
            self._act_later()
            return
        self._asked += 1
        node.ask(self._serve(node, self._asked))
        self._world.after(ANSWER_S_MAX, self._over, self._asked)

    def _coordinator(self) -> SimulatedNode | None:
        nodes = [node for node in self._nodes if node.is_responsive]
        leading = [
            node
            for node in nodes
            if (replica := node.group_log(GROUP)) is not None and replica.is_leader
        ]
        choices = leading or nodes
        return self._world.random.choice(choices) if choices else None

    async def _serve(self, node: SimulatedNode, number: int) -> None:
        assert node.server is not None
        try:
            await self._next(node.server.services.groups)
        except Refused as refused:
            if number == self._asked:
                self._refused(refused.reason)
        self._world.after(0.001, self._over, number)

    def _over(self, number: int) -> None:
        """Answered, or given up: then what the broker did may be unknown, and it joins again."""
        if number == self._asked:
            self._asked += 1
            self._act_later()

    def _refused(self, reason: Reason) -> None:
        if reason in _UNKNOWN:
            self._member_id = NO_MEMBER
        if reason in _UNKNOWN or reason in _AGAIN:
            self._owned, self._next = [], self._join

    # The protocol

    async def _join(self, groups: Groups) -> None:
        number = self._asked
        answer = await groups.join(
            Join(
                group_id=GROUP,
                member_id=self._member_id,
                client_id=self._name,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                protocol_type=PROTOCOL_TYPE,
                protocols=(MemberProtocol(PROTOCOL, self._name.encode()),),
            )
        )
        if number != self._asked:
            return
        if answer.refused is Reason.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            return
        if answer.refused is not None:
            self._refused(answer.refused)
            return
        self._member_id, self._generation = answer.member_id, answer.generation
        members = [member.member_id for member in answer.members]
        self._assignments = self._assign(members) if answer.leader == self._member_id else {}
        self._next = self._sync

    def _assign(self, members: Sequence[MemberId]) -> dict[str, bytes]:
        token = self._group.new_token()
        owned: dict[str, list[int]] = {member: [] for member in members}
        for partition in range(self._group.partitions):
            owned[members[partition % len(members)]].append(partition)
        return {
            member: b"%s:%s" % (token, ",".join(map(str, partitions)).encode())
            for member, partitions in owned.items()
        }

    async def _sync(self, groups: Groups) -> None:
        number, generation = self._asked, self._generation
        command = Sync(
            group_id=GROUP,
            member_id=self._member_id,
            generation=generation,
            assignments=self._assignments,
        )
        answer = await groups.sync(command)
        if number != self._asked:
            return
        if answer.refused is not None:
            self._refused(answer.refused)
            return
        token, _, owned = answer.assignment.partition(b":")
        self._group.told(generation, token)
        self._owned = [int(partition) for partition in owned.split(b",") if partition]
        self._next = self._work

    async def _work(self, groups: Groups) -> None:
        if self._world.random.random() < LEAVE_CHANCE:
            member_id, self._member_id = self._member_id, NO_MEMBER
            self._owned, self._next = [], self._join
            await groups.leave(GROUP, [Departure(member_id)])
            return
        if self._owned and self._world.random.random() < 0.5:
            await self._commit(groups, self._world.random.choice(self._owned))
        else:
            groups.heartbeat(GROUP, self._member_id, None, self._generation)

    async def _commit(self, groups: Groups, partition: int) -> None:
        group, generation = self._group, self._generation
        commits, is_fenced = group.commits[partition], generation < group.newest
        number = commits.ask(self._world.now)
        command = CommitOffsets(
            group_id=GROUP,
            member_id=self._member_id,
            generation=generation,
            offsets=(OffsetToCommit(group.topic, partition, number),),
        )
        try:
            is_done = await groups.commit_offsets(command) == [None]
        except Refused:
            group.fenced += is_fenced
            raise
        finally:
            # With the end of the process it is over too.
            commits.over(number, self._world.now)
        if is_done:
            require(
                not is_fenced,
                f"generation {generation} committed offsets after {group.newest} had begun",
            )
            commits.acknowledge(number)
            group.acknowledged += 1
