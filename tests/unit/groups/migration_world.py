"""Members of both protocols around one coordinator, on a clock that only moves when told to.

Clients behave as correct consumers do. Those of the classic protocol are all eager, and give up
everything before they join, or all cooperative, and give up only what is taken from them. Every
client acts in every second, so none of them is ever late. Coordinators are replaced by others,
which know only what was stored.

The world checks at every change that no partition is used by two.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from random import Random
from typing import Any

from penstock.groups.commands import (
    ConsumerHeartbeat,
    Departure,
    Join,
    JoinAnswer,
    MemberProtocol,
    Sync,
    SyncAnswer,
)
from penstock.groups.subscriptions import read_assignment, read_subscription, write_assignment
from penstock.model.errors import Reason, Refused
from penstock.model.ids import MemberId
from tests.consumer_metadata import write_subscription
from tests.unit.groups.consumer_rig import FakeCatalog
from tests.unit.groups.test_consumer_coordinator import G, Rig

TICK_MS = 1_000
SESSION_MS = 10_000
REBALANCE_MS = 30_000
# Turns of the loop until everything that can happen has happened.
TURNS = 12
CLIENTS_MAX = 5
TOPIC = "t"
_AWAY = (Reason.NOT_COORDINATOR, Reason.COORDINATOR_LOAD_IN_PROGRESS)
_LOST = (Reason.UNKNOWN_MEMBER_ID, Reason.ILLEGAL_GENERATION)
_OUT = (Reason.UNKNOWN_MEMBER_ID, Reason.FENCED_MEMBER_EPOCH)


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        catalog = FakeCatalog()
        self.topic_id = catalog.make(TOPIC, 6)
        self.rig = Rig(catalog=catalog)
        self.is_cooperative = self.random.random() < 0.6
        self.clients: list[Client] = []
        self.evicted: list[str] = []
        # How often the group became a classic one.
        self.moves_back = 0
        self._made = 0
        self._count_moves()

    def _count_moves(self) -> None:
        consumers = self.rig.coordinator._consumers
        become_classic = consumers._become_classic

        def counted(*args: Any) -> None:
            self.moves_back += 1
            become_classic(*args)

        consumers._become_classic = counted

    async def rest(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def tick(self) -> None:
        for client in self.random.sample(self.clients, len(self.clients)):
            await client.act()
            await self.rest()
            self.check()
        self.rig.pass_time(TICK_MS)
        await self.rest()
        self.rig.host.state.validate()

    def check(self) -> None:
        users: dict[int, Client] = {}
        for client in self.clients:
            for partition in client.used:
                other = users.setdefault(partition, client)
                assert other is client, f"{other} and {client} use {partition}"

    # What happens

    async def happen(self) -> None:
        events = [self.arrive, self.leave, self.vanish, self.roll, self.fail_over, self.grow]
        weights = [8, 4, 2, 8, 2, 1]
        await self.random.choices([*events, self.roll_all], [*weights, 2])[0]()

    async def arrive(
        self, instance_id: str | None = None, kind: "type[Client] | None" = None
    ) -> None:
        if len(self.clients) >= CLIENTS_MAX:
            return
        self._made += 1
        if kind is None:
            kind = ClassicClient if self.random.random() < 0.5 else ConsumerClient
        if instance_id is None and self.random.random() < 0.3:
            instance_id = f"i{self._made}"
        self.clients.append(kind(self, f"m{self._made}", instance_id))

    async def leave(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            self.clients.remove(client)
            client.used = set()
            await self._ended(client.leave())
            await self.maybe_fail_over()

    async def vanish(self) -> None:
        """It is not heard of any more, and has stopped."""
        if self.clients:
            self.clients.remove(self.random.choice(self.clients))

    async def roll(self) -> None:
        """A member stops, and another one comes in its place, maybe with the other protocol."""
        if self.clients:
            await self._replace(self.random.choice(self.clients), None)

    async def roll_all(self) -> None:
        """One after the other, until all speak one protocol."""
        kind = ClassicClient if self.random.random() < 0.6 else ConsumerClient
        for client in [each for each in self.clients if not isinstance(each, kind)]:
            await self._replace(client, kind)
            for _ in range(self.random.choice([1, 6])):
                await self.tick()

    async def _replace(self, client: "Client", kind: "type[Client] | None") -> None:
        self.clients.remove(client)
        client.used = set()
        instance_id = client.instance_id if client.is_settled else None
        await self._ended(client.pause() if instance_id else client.leave())
        await self.maybe_fail_over()
        await self.arrive(instance_id, kind)

    async def maybe_fail_over(self) -> None:
        """Right after a change, while not everybody knows of it."""
        if self.random.random() < 0.2:
            await self.fail_over()

    async def fail_over(self) -> None:
        before, self.rig = self.rig, self.rig.next()
        self._count_moves()
        before.host.lose()
        await self.rest()

    async def grow(self) -> None:
        self.rig.catalog.grow(TOPIC, self.rig.catalog.topics[TOPIC].partitions + 1)
        self.rig.coordinator.topic_changed(TOPIC)

    async def _ended(self, request: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(request)
        await self.rest()
        assert task.done(), "nobody answers to a member that leaves"
        await task

    async def close(self) -> None:
        self.rig.host.lose()
        await self.rest()


def _expect(refused: Refused, *reasons: Reason) -> None:
    assert refused.reason in reasons, refused


class Client:
    def __init__(self, world: World, name: str, instance_id: str | None) -> None:
        self.world, self.name, self.instance_id = world, name, instance_id
        self.used: set[int] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.name} with {sorted(self.used)}"

    @property
    def coordinator(self) -> Any:
        return self.world.rig.coordinator

    @property
    def is_settled(self) -> bool:
        """Whether another one may take its place."""
        return True

    async def act(self) -> None:
        raise NotImplementedError

    async def leave(self) -> None:
        raise NotImplementedError

    async def pause(self) -> None:
        """Its instance will be back."""
        raise NotImplementedError

    def refused(self, reason: Reason) -> None:
        if reason in _OUT:
            # Nobody is ever late here, so nobody may be put out.
            self.world.evicted.append(f"{self} is told {reason.name}")


class ConsumerClient(Client):
    """Of the new protocol. It does with one heartbeat what the answer to the last one said."""

    epoch = 0
    # What the coordinator knows that it uses; None if it may know nothing of it.
    said: set[int] | None = None

    async def act(self) -> None:
        using = self.used if self.epoch else set()
        fields: dict[str, Any] = {}
        if not self.epoch or self.said != using:
            fields["owned"] = {self.world.topic_id: frozenset(using)} if using else {}
        if not self.epoch or self.said is None:
            fields |= {"topics": frozenset({TOPIC}), "rebalance_timeout_ms": REBALANCE_MS}
        try:
            answer = await self._beat(self.epoch, **fields)
        except Refused as refused:
            if refused.reason in _OUT:
                self.refused(refused.reason)
                self.epoch, self.used, self.said = 0, set(), None
            else:
                _expect(refused, *_AWAY, Reason.UNRELEASED_INSTANCE_ID)
            return
        self.epoch, self.said = answer.member_epoch, using
        if answer.assignment is not None:
            self.used = set(answer.assignment.get(self.world.topic_id, ()))

    async def _beat(self, epoch: int, **fields: Any) -> Any:
        command = ConsumerHeartbeat(
            group_id=G,
            member_id=MemberId(self.name),
            member_epoch=epoch,
            instance_id=self.instance_id,
            **fields,
        )
        return await self.coordinator.consumer_heartbeat(command)

    async def leave(self) -> None:
        await self._leave(-1)

    async def pause(self) -> None:
        await self._leave(-2)

    async def _leave(self, epoch: int) -> None:
        if self.epoch:
            try:
                await self._beat(epoch)
            except Refused as refused:
                _expect(refused, *_AWAY)


class ClassicClient(Client):
    """Has one request under way at a time; a join may take several turns."""

    def __init__(self, world: World, name: str, instance_id: str | None) -> None:
        super().__init__(world, name, instance_id)
        self.member_id = MemberId("")
        self.generation = -1
        self.assignments: Mapping[str, bytes] = {}
        # As a leader: how many partitions it has assigned.
        self.counted: int | None = None
        self.is_joined = self.is_synced = False
        # Whether it was ever in a stored generation: before, a coordinator that goes forgets it.
        self.is_known = False
        self.moves_back = world.moves_back
        self.request: asyncio.Future[Any] | None = None

    async def act(self) -> None:
        if self.counted not in (None, self._partitions()):
            # A leader looks at the topics itself.
            self.counted, self.is_joined, self.is_synced = None, False, False
        if self.request is None:
            if self.is_synced:
                self._beat()
                return
            request = self._sync() if self.is_joined else self._join()
            self.request = asyncio.ensure_future(request)
        await self.world.rest()
        if self.request.done():
            request, self.request = self.request, None
            self._answered(await request)

    def _partitions(self) -> int:
        return self.world.rig.catalog.topics[TOPIC].partitions

    def _beat(self) -> None:
        try:
            self.coordinator.heartbeat(G, self.member_id, self.instance_id, self.generation)
        except Refused as refused:
            self._join_again(refused.reason)

    async def _join(self) -> JoinAnswer:
        is_cooperative = self.world.is_cooperative
        if not is_cooperative:
            self.used = set()
        metadata = write_subscription(
            [TOPIC], {TOPIC: self.used} if self.used else {}, generation=self.generation
        )
        command = Join(
            group_id=G,
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(MemberProtocol("sticky" if is_cooperative else "range", metadata),),
        )
        try:
            answer: JoinAnswer = await self.coordinator.join(command)
        except Refused as refused:
            return JoinAnswer(refused=refused.reason)
        return answer

    async def _sync(self) -> SyncAnswer:
        command = Sync(
            group_id=G,
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.generation,
            assignments=self.assignments,
        )
        try:
            answer: SyncAnswer = await self.coordinator.sync(command)
        except Refused as refused:
            return SyncAnswer(refused=refused.reason)
        return answer

    def _answered(self, answer: JoinAnswer | SyncAnswer) -> None:
        if answer.refused is Reason.MEMBER_ID_REQUIRED:
            assert isinstance(answer, JoinAnswer)
            self.member_id = answer.member_id
        elif answer.refused is not None:
            self._join_again(answer.refused)
        elif isinstance(answer, JoinAnswer):
            self.member_id, self.generation = answer.member_id, answer.generation
            self.is_joined, self.counted = True, None
            self.assignments = self._assign(answer) if answer.leader == self.member_id else {}
        else:
            read = read_assignment(answer.assignment)
            assert read is not None
            assigned = set(read.partitions.get(TOPIC, ()))
            gave_up, self.used = self.used - assigned, assigned
            self.is_synced = self.is_known = True
            self.moves_back = self.world.moves_back
            if gave_up:
                self.is_joined = self.is_synced = False

    def _join_again(self, reason: Reason) -> None:
        is_consumer_group = self.world.rig.host.state.modern(G) is not None
        # A generation that was not stored may be lost, and a group that moves back has one for all,
        # also for members that were behind.
        is_right = self.is_synced and self.moves_back == self.world.moves_back
        self.is_joined = self.is_synced = False
        if reason is Reason.ILLEGAL_GENERATION and is_consumer_group and is_right:
            self.world.evicted.append(f"{self} is told {reason.name} by a consumer group")
        if reason is Reason.FENCED_INSTANCE_ID:
            # It had taken the place of another in a generation that was not stored: as if started
            # again.
            assert not self.is_known
            self.member_id = MemberId("")
        if reason is Reason.UNKNOWN_MEMBER_ID:
            if self.is_known:
                self.refused(reason)
            self.member_id, self.is_known = MemberId(""), False
        if reason in (*_LOST, Reason.FENCED_INSTANCE_ID):
            self.used, self.generation = set(), -1
            return
        known = (*_AWAY, Reason.REBALANCE_IN_PROGRESS)
        assert reason in known, f"{self} is told {reason}"

    def _assign(self, answer: JoinAnswer) -> Mapping[str, bytes]:
        """Balanced. What another one claims is given to nobody, for one generation."""
        claims: dict[str, tuple[int, set[int]]] = {}
        for member in answer.members:
            said = read_subscription(member.metadata)
            assert said is not None
            claims[member.member_id] = said.generation, set(said.owned.get(TOPIC, ()))
        owners: dict[int, str] = {}
        for member_id, (_, owned) in sorted(claims.items(), key=lambda item: item[1][0]):
            owners.update(dict.fromkeys(owned, member_id))
        count = self.counted = self._partitions()
        quota = -(-count // len(claims))
        given: dict[str, set[int]] = {member_id: set() for member_id in claims}
        for partition in range(count):
            owner = owners.get(partition)
            if owner is not None and len(given[owner]) < quota:
                given[owner].add(partition)
        for partition in range(count):
            if not any(partition in each for each in given.values()):
                poorest = min(sorted(given), key=lambda member_id: len(given[member_id]))
                if owners.get(partition) in (None, poorest):
                    given[poorest].add(partition)
        return {m: write_assignment(3, {TOPIC: ps} if ps else {}) for m, ps in given.items()}

    async def leave(self) -> None:
        if self.member_id:
            departure = Departure(self.member_id, self.instance_id)
            try:
                await self.coordinator.leave(G, [departure])
            except Refused as refused:
                _expect(refused, *_AWAY)

    async def pause(self) -> None:
        """Members of the classic protocol say nothing then."""

    @property
    def is_settled(self) -> bool:
        """One that has given something up and did not join again would leave it to nobody if its
        instance came back, in any classic group."""
        return self.is_synced
