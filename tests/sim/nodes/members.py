"""A simulated consumer group of Kafka's classic protocol: members join, sync, beat, commit, leave.

One generation's assignment is valid at a time: all who learn a stored one learn the same,
no partition belongs to two, and once a later one is stored, nobody commits with an earlier one. A
commit that was acknowledged is what the next asker gets, unless a later one replaced it.

Some members are static: they restart under the same name, as somebody else. The group goes on in
its generation then, and who still uses the old id is fenced. A group that has members can't be
deleted; one without may be, and then it begins at its first generation again.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence

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
# Of static members, and of those that were replaced and do not know it.
RESTART_CHANCE = 0.15
LATE_CHANCE = 0.3
DELETION_CHANCE = 0.1
# For so long after it asked for a commit that was acknowledged, a member is one for sure: no
# session and no rebalance is over sooner, on the fastest of clocks.
MEMBER_FOR_S = 1.2
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
        # By generation and partition: who was told that it is its own.
        self._owners: dict[tuple[int, int], str] = {}
        # What was told of the group's earlier lives had tokens up to this one.
        self._tokens_before = 0
        self._deletions_under_way = 0
        self.commits = [Commits() for _ in range(partitions)]
        self._tokens = 0
        self.found: dict[int, int] = {}
        self.acknowledged = self.fenced = 0
        self.generations = 0
        # How often a static member came back and the generation was the same.
        self.returned = 0

    @property
    def newest(self) -> int:
        """The newest generation that a member was told the assignment of."""
        return 0 if self._deletions_under_way else self._newest_told

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

    def told(self, generation: int, token: bytes, name: str, owned: Iterable[int]) -> None:
        if int(token) <= self._tokens_before:
            return
        if generation not in self._told:
            self.generations += 1
        known = self._told.setdefault(generation, token)
        require(
            known == token,
            f"generation {generation} has the assignments {known!r} and {token!r}",
        )
        for partition in owned:
            owner = self._owners.setdefault((generation, partition), name)
            require(
                owner == name,
                f"in generation {generation} partition {partition} is {owner}'s and {name}'s",
            )
        self._newest_told = max(self._newest_told, generation)

    # Deletion

    def begin_deletion(self, now: float) -> list[int]:
        """Gives for each partition the number of the change."""
        self._deletions_under_way += 1
        return [commits.ask(now, deletes=True) for commits in self.commits]

    def end_deletion(self, numbers: Sequence[int], now: float, *, is_refused: bool) -> None:
        """Unless it was refused, generations may begin at the first again."""
        self._deletions_under_way -= 1
        for commits, number in zip(self.commits, numbers, strict=True):
            commits.over(number, now)
        if not is_refused:
            self._told, self._owners, self._newest_told = {}, {}, 0
            self._tokens_before = self._tokens


class GroupConsumer:
    """One member; one request at a time, to the group's coordinator or to any node."""

    def __init__(
        self, world: World, nodes: Sequence[SimulatedNode], group: WorkGroup, number: int
    ) -> None:
        self._world = world
        self._nodes = nodes
        self._group = group
        self._name = f"worker-{number}"
        # Only some have a name that outlives them.
        self._instance = self._name if world.random.random() < 0.5 else None
        # The member id and the generation of the one before, which may still be at work.
        self._former: tuple[MemberId, int] | None = None
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
                instance_id=self._instance,
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
        if self._former is not None:
            former, generation = self._former
            require(former != self._member_id, f"{former} came back under its old id")
            self._group.returned += generation == self._generation
        members = [member.member_id for member in answer.members]
        assigns = answer.leader == self._member_id and not answer.skip_assignment
        self._assignments = self._assign(members) if assigns else {}
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
            instance_id=self._instance,
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
        self._owned = [int(partition) for partition in owned.split(b",") if partition]
        self._group.told(generation, token, self._name, self._owned)
        self._next = self._work

    async def _work(self, groups: Groups) -> None:
        random = self._world.random
        if random.random() < LEAVE_CHANCE:
            member_id, self._member_id = self._member_id, NO_MEMBER
            self._owned, self._next = [], self._join
            await groups.leave(GROUP, [Departure(member_id, self._instance)])
        elif self._instance is not None and random.random() < RESTART_CHANCE:
            self._restart()
            await self._join(groups)
        elif self._former is not None and random.random() < LATE_CHANCE:
            await self._commit_late(groups, *self._former)
        elif self._owned and random.random() < 0.5:
            asked_at = self._world.now
            await self._commit(
                groups, random.choice(self._owned), self._member_id, self._generation
            )
            if random.random() < DELETION_CHANCE:
                # Refused amid a rebalance, which may end without this member.
                groups.heartbeat(GROUP, self._member_id, self._instance, self._generation)
                await self._try_to_delete(groups, asked_at + MEMBER_FOR_S)
        else:
            groups.heartbeat(GROUP, self._member_id, self._instance, self._generation)

    def _restart(self) -> None:
        self._former = self._member_id, self._generation
        self._member_id, self._owned, self._next = NO_MEMBER, [], self._join

    async def _commit_late(self, groups: Groups, member_id: MemberId, generation: int) -> None:
        """The one before does not know that it was replaced; who it is now was told so by then."""
        self._former = None
        partition = self._world.random.randrange(self._group.partitions)
        try:
            is_done = await self._commit(groups, partition, member_id, generation)
        except Refused:
            self._group.fenced += 1
            return
        require(not is_done, f"{member_id} committed as {self._instance}, which is another one now")

    async def _try_to_delete(self, groups: Groups, is_member_until: float) -> None:
        group, outcomes = self._group, list[Reason | None]()
        numbers = group.begin_deletion(self._world.now)
        try:
            outcomes = await groups.delete([GROUP])
        finally:
            is_refused = outcomes in ([Reason.NON_EMPTY_GROUP], [Reason.GROUP_ID_NOT_FOUND])
            group.end_deletion(numbers, self._world.now, is_refused=is_refused)
        if outcomes == [None]:
            require(
                self._world.now > is_member_until,
                f"the group was deleted while {self._member_id} was in it",
            )
            for commits, number in zip(group.commits, numbers, strict=True):
                commits.acknowledge(number)

    async def _commit(
        self, groups: Groups, partition: int, member_id: MemberId, generation: int
    ) -> bool:
        """Says whether it was acknowledged."""
        group = self._group
        commits, is_fenced = group.commits[partition], generation < group.newest
        number = commits.ask(self._world.now)
        command = CommitOffsets(
            group_id=GROUP,
            member_id=member_id,
            instance_id=self._instance,
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
        return is_done
