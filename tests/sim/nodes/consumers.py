"""A simulated consumer group of the new protocol (KIP-848): members beat, are told what is theirs,
give it up, commit, restart and leave.

A partition that a member was told of in some epoch is nobody else's in that epoch, and whoever was
told of it in a later one is its owner: as long as it is a member, a commit of anybody else is
refused. Epochs only grow. A commit that was acknowledged is what whoever asks next is told, unless
a later one replaced it.
"""

from collections.abc import Awaitable, Callable, Sequence

from penstock.broker.groups import Groups
from penstock.groups.commands import (
    CommitOffsets,
    ConsumerAnswer,
    ConsumerHeartbeat,
    OffsetToCommit,
)
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicName
from tests.sim.machine.world import World
from tests.sim.nodes.committer import Commits, fetch_offsets
from tests.sim.nodes.node import SimulatedNode
from tests.sim.replicas.history import require

GROUP = GroupId("team")
# Longer than any member takes to give up what it has to, also when it misses some answers.
REBALANCE_MS = 20_000
# For so long after it asked for something that it got, a member is one for sure: no session is over
# sooner, on the fastest of clocks.
MEMBER_FOR_S = 1.2
ANSWER_S_MAX = 3.0
BETWEEN_S = (0.05, 0.5)
# Longer than a session, after which a member goes on as if nothing had happened.
AWAY_S = (2.0, 4.0)
AWAY_CHANCE = 0.04
LEAVE_CHANCE = 0.04
RESTART_CHANCE = 0.06
COMMIT_CHANCE = 0.4
LATE_CHANCE = 0.3
_BEGIN_AGAIN = frozenset({Reason.UNKNOWN_MEMBER_ID, Reason.FENCED_MEMBER_EPOCH})


class Team:
    """What all members together may see of their group."""

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic = TopicName(topic)
        self.partitions = partitions
        self.newest_epoch = 0
        # By epoch and partition: who was told that it is its own.
        self._told: dict[tuple[int, int], MemberId] = {}
        self._owners: dict[int, tuple[int, MemberId]] = {}
        # Until when a member is one for sure.
        self._sure_until: dict[MemberId, float] = {}
        self.commits = [Commits() for _ in range(partitions)]
        self.found: dict[int, int] = {}
        self.acknowledged = self.fenced = self.returned = self.handed_over = 0

    def told(self, member_id: MemberId, epoch: int, owned: Sequence[int]) -> None:
        self.newest_epoch = max(self.newest_epoch, epoch)
        # What it gives up is nobody's until somebody is told of it.
        given_up = [p for p, (_, owner) in self._owners.items() if owner == member_id]
        for partition in set(given_up).difference(owned):
            del self._owners[partition]
        for partition in owned:
            owner = self._told.setdefault((epoch, partition), member_id)
            require(
                owner == member_id,
                f"in epoch {epoch} partition {partition} is {owner}'s and {member_id}'s",
            )
            before = self._owners.get(partition)
            if before is None or epoch > before[0]:
                self.handed_over += before is not None and before[1] != member_id
                self._owners[partition] = epoch, member_id

    def replaced(self, former: MemberId, member_id: MemberId) -> None:
        """An instance goes on under another id, in the same epoch and with what it had."""
        for place, owner in self._told.items():
            if owner == former:
                self._told[place] = member_id
        for partition, (epoch, owner) in self._owners.items():
            if owner == former:
                self._owners[partition] = epoch, member_id

    def lives(self, member_id: MemberId, asked_at: float) -> None:
        self._sure_until[member_id] = asked_at + MEMBER_FOR_S

    def goes(self, member_id: MemberId) -> None:
        self._sure_until.pop(member_id, None)

    def is_anothers(self, partition: int, member_id: MemberId, now: float) -> bool:
        _, owner = self._owners.get(partition, (0, member_id))
        return owner != member_id and now < self._sure_until.get(owner, 0.0)

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


class TeamMember:
    """One request at a time, to whoever coordinates the group or to anybody."""

    def __init__(
        self, world: World, nodes: Sequence[SimulatedNode], team: Team, number: int
    ) -> None:
        self._world = world
        self._nodes = nodes
        self._team = team
        self._name = f"member-{number}"
        self._instance = self._name if world.random.random() < 0.4 else None
        self._lives = 0
        # Of the one before, which may still be at work.
        self._former: tuple[MemberId, int] | None = None
        # The id that the instance has left under, for now.
        self._away: MemberId | None = None
        self._asked = 0
        self._begin()
        self._act_later()

    def _begin(self) -> None:
        self._lives += 1
        self._member_id = MemberId(f"{self._name}-{self._lives}")
        self._join_again()

    def _join_again(self) -> None:
        self._epoch = 0
        self._used: frozenset[int] = frozenset()
        # What the coordinator knows that it uses.
        self._said: frozenset[int] = frozenset()
        self._says_all = True

    def _act_later(self) -> None:
        random = self._world.random
        is_away = bool(self._used) and random.random() < AWAY_CHANCE
        self._world.after(random.uniform(*(AWAY_S if is_away else BETWEEN_S)), self._act)

    def _act(self) -> None:
        node = self._coordinator()
        if node is None:
            self._act_later()
            return
        self._asked += 1
        node.ask(self._serve(node, self._asked, self._choose()))
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

    async def _serve(
        self, node: SimulatedNode, number: int, act: Callable[[Groups], Awaitable[None]]
    ) -> None:
        assert node.server is not None
        try:
            await act(node.server.services.groups)
        except Refused as refused:
            if number == self._asked:
                self._refused(refused.reason)
        self._world.after(0.001, self._over, number)

    def _over(self, number: int) -> None:
        if number == self._asked:
            self._asked += 1
            self._act_later()

    def _refused(self, reason: Reason) -> None:
        # It may have missed an answer, so it says and asks for all.
        self._says_all = True
        if reason in _BEGIN_AGAIN:
            self._join_again()
        elif reason is Reason.FENCED_INSTANCE_ID:
            self._begin()
        else:
            # Whoever was told an epoch is in a group that is stored.
            lost = reason is Reason.GROUP_ID_NOT_FOUND and self._epoch > 0
            require(not lost, f"{self._member_id} of epoch {self._epoch} has no group any more")

    def _choose(self) -> Callable[[Groups], Awaitable[None]]:
        random = self._world.random
        if self._former is not None and random.random() < LATE_CHANCE:
            return self._commit_late
        if not self._epoch:
            return self._beat
        if random.random() < LEAVE_CHANCE:
            return self._leave
        if random.random() < RESTART_CHANCE:
            self._restart()
            return self._beat
        if self._used and random.random() < COMMIT_CHANCE:
            return self._commit_own
        return self._beat

    def _restart(self) -> None:
        """Without a word; its instance, if it has one, can come back after its session."""
        self._former = self._member_id, self._epoch
        self._begin()

    # The protocol

    async def _beat(self, groups: Groups) -> None:
        number, epoch, newest = self._asked, self._epoch, self._team.newest_epoch
        says_all, self._says_all = self._says_all or not epoch, False
        used = self._used
        command = ConsumerHeartbeat(
            group_id=GROUP,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=self._instance,
            client_id=self._name,
            rebalance_timeout_ms=REBALANCE_MS if says_all else None,
            topics=frozenset({self._team.topic}) if says_all else None,
            # As clients do: what is known is not said again.
            owned=self._owned(groups) if says_all or used != self._said else None,
        )
        self._says_all = True
        asked_at = self._world.now
        answer = await groups.consumer_heartbeat(command)
        if number == self._asked:
            self._says_all, self._said = False, used
            self._take(answer, epoch, newest)
            self._team.lives(self._member_id, asked_at)

    def _owned(self, groups: Groups) -> dict[object, frozenset[int]]:
        topic = groups._cluster.topic(self._team.topic)
        return {} if topic is None or not self._used else {topic.topic_id: self._used}

    def _take(self, answer: ConsumerAnswer, epoch: int, newest: int) -> None:
        team = self._team
        if not epoch:
            # Others were told the newest epoch before this one asked to join.
            require(
                answer.member_epoch >= newest,
                f"{self._member_id} joined epoch {answer.member_epoch} after {newest}",
            )
            if self._away is not None:
                team.replaced(self._away, self._member_id)
                team.returned += 1
            self._away = None
        require(answer.member_epoch >= epoch, f"{self._member_id} went back from epoch {epoch}")
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            (self._used,) = tuple(answer.assignment.values()) or (frozenset(),)
            team.told(self._member_id, self._epoch, sorted(self._used))

    async def _leave(self, groups: Groups) -> None:
        is_away = self._instance is not None and self._world.random.random() < 0.7
        member_id, self._away = self._member_id, None
        command = ConsumerHeartbeat(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=-2 if is_away else -1,
            instance_id=self._instance,
        )
        self._former = member_id, self._epoch
        self._team.goes(member_id)
        self._begin()
        await groups.consumer_heartbeat(command)
        if is_away:
            self._away = member_id

    async def _commit_own(self, groups: Groups) -> None:
        partition = self._world.random.choice(sorted(self._used))
        await self._commit(groups, partition, self._member_id, self._epoch)

    async def _commit_late(self, groups: Groups) -> None:
        assert self._former is not None
        (member_id, epoch), self._former = self._former, None
        partition = self._world.random.randrange(self._team.partitions)
        try:
            await self._commit(groups, partition, member_id, epoch)
        except Refused:
            return

    async def _commit(
        self, groups: Groups, partition: int, member_id: MemberId, epoch: int
    ) -> None:
        team = self._team
        commits, is_fenced = team.commits[partition], self._is_fenced(partition, member_id)
        number = commits.ask(self._world.now)
        command = CommitOffsets(
            group_id=GROUP,
            member_id=member_id,
            instance_id=self._instance,
            generation=epoch,
            offsets=(OffsetToCommit(team.topic, partition, number),),
        )
        outcomes = list[Reason | None]()
        try:
            outcomes = await groups.commit_offsets(command)
        finally:
            # With the end of the process it is over too.
            commits.over(number, self._world.now)
            team.fenced += is_fenced and outcomes != [None]
        if outcomes == [None]:
            is_fenced = is_fenced and self._is_fenced(partition, member_id)
            require(
                not is_fenced,
                f"{member_id} committed partition {partition}, which is another's: {team._owners}",
            )
            commits.acknowledge(number)
            team.acknowledged += 1

    def _is_fenced(self, partition: int, member_id: MemberId) -> bool:
        return self._team.is_anothers(partition, member_id, self._world.now)
