"""Consumer groups (KIP-848) at their coordinator: what is stored first, who is out of time, and
what becomes of a name that had a group of the other type."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self

import pytest

from penstock.groups.commands import (
    CommitOffsets,
    ConsumerAnswer,
    ConsumerHeartbeat,
    Departure,
    Join,
    MemberProtocol,
    OffsetToCommit,
    Sync,
)
from penstock.groups.coordinator import Coordinator
from penstock.groups.settings import GroupSettings, MigrationPolicy
from penstock.groups.simple_assignor import SimpleAssignor
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicName
from tests.unit.cluster.fakes import ids_from
from tests.unit.groups.consumer_rig import FakeCatalog, FakeQueues, InTurn
from tests.unit.groups.driver import FakeClock, subscription
from tests.unit.groups.memory_host import MemoryHost

G = GroupId("readers")
T = TopicName("t")
SESSION_MS = 45_000
REBALANCE_MS = 30_000


class Rig:
    def __init__(
        self,
        host: MemoryHost | None = None,
        catalog: FakeCatalog | None = None,
        clock: FakeClock | None = None,
        **settings_given: Any,
    ) -> None:
        self.settings_given = settings_given
        self.host = host or MemoryHost()
        self.queues = FakeQueues()
        self.clock = clock or FakeClock()
        self.catalog = catalog or FakeCatalog()
        if catalog is None:
            self.catalog.make("t", 4)
        settings = GroupSettings(
            initial_rebalance_delay_ms=0, offsets_retention_ms=1_000, **settings_given
        )
        self.coordinator = Coordinator(
            host=self.host,  # type: ignore[arg-type]
            settings=settings,
            clock=self.clock,
            new_uuid=ids_from(1),
            catalog=self.catalog,
            assignors={"in-turn": InTurn()},
            share_assignors={"simple": SimpleAssignor()},
            queues=self.queues,
            settings_of=lambda _: settings,
        )
        self.coordinator.start()

    def next(self) -> Self:
        """Another coordinator, with what this one has stored."""
        host = MemoryHost(self.host.log)
        return type(self)(host, self.catalog, self.clock, **self.settings_given)

    def pass_time(self, duration_ms: int) -> None:
        self.clock.ms += duration_ms
        alarms = self.coordinator._alarms
        # As if the timer had come in time.
        alarms._wake_up_at = self.clock.monotonic()
        alarms._ring()

    async def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> ConsumerAnswer:
        command = ConsumerHeartbeat(
            group_id=G, member_id=MemberId(member_id), member_epoch=epoch, client_id="c", **fields
        )
        return await self.coordinator.consumer_heartbeat(command)

    async def join(self, member_id: str, **fields: Any) -> ConsumerAnswer:
        said: dict[str, Any] = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "topics": frozenset({"t"}),
            "owned": {},
        }
        return await self.heartbeat(member_id, 0, **(said | fields))

    def owned(self, *partitions: int) -> dict[Any, frozenset[int]]:
        return {self.catalog.topics["t"].topic_id: frozenset(partitions)}

    async def commit(self, member_id: str, epoch: int, *partitions: int, **fields: Any) -> Any:
        offsets = tuple(OffsetToCommit(T, partition, 7) for partition in partitions)
        return await self.coordinator.commit(
            CommitOffsets(
                group_id=G,
                member_id=MemberId(member_id),
                generation=epoch,
                offsets=offsets,
                **fields,
            )
        )

    async def committed(self, partition: int = 0, **credentials: Any) -> int | None:
        wanted = [(T, [partition])]
        ((_, ((_, found),)),) = await self.coordinator.fetch(G, wanted, **credentials)
        return None if found is None else found.offset

    async def classic_member(self) -> MemberId:
        joined = await self.coordinator.join(
            Join(
                group_id=G,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=(MemberProtocol("range", subscription("t")),),
                takes_member_id=False,
            )
        )
        assert joined.refused is None, joined
        member_id, generation = joined.member_id, joined.generation
        command = Sync(
            group_id=G, member_id=member_id, generation=generation, assignments={member_id: b"all"}
        )
        assert (await self.coordinator.sync(command)).refused is None
        return member_id


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 30))


async def refusal(request: Awaitable[object]) -> Reason:
    with pytest.raises(Refused) as refused:
        await request
    return refused.value.reason


# What is stored


def test_an_answer_leaves_after_it_is_stored() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.host.held = asyncio.Event()
        joining = asyncio.create_task(rig.join("a"))
        full = asyncio.create_task(
            rig.heartbeat("a", 0, topics=frozenset({"t"}), owned={}, rebalance_timeout_ms=1)
        )
        # Also the one that only repeats what the first has asked for.
        repeated = asyncio.create_task(rig.heartbeat("a", 2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not any(each.done() for each in (joining, full, repeated))
        rig.host.held.set()
        assert (await joining).assignment == rig.owned(0, 1, 2, 3)
        assert (await full).member_epoch == (await repeated).member_epoch == 2

    run(scenario)


def test_a_heartbeat_without_news_stores_nothing() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        stored = list(rig.host.log)
        for _ in range(3):
            assert (await rig.heartbeat("a", 2)).assignment is None
        assert rig.host.log == stored

    run(scenario)


def test_what_could_not_be_stored_did_not_happen() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        rig.host.is_disk_full = True
        assert await refusal(rig.join("b")) is Reason.NOT_COORDINATOR
        rig.host.is_disk_full = False
        assert await refusal(rig.heartbeat("b", 3)) is Reason.UNKNOWN_MEMBER_ID
        assert (await rig.heartbeat("a", 2)).member_epoch == 2

    run(scenario)


def test_the_next_coordinator_goes_on_with_the_same_epochs() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        await rig.join("b")
        await rig.heartbeat("a", 2)
        rig = rig.next()
        answer = await rig.heartbeat("a", 2, owned=rig.owned(0, 2))
        assert (answer.member_epoch, answer.assignment) == (3, None)
        assert (await rig.heartbeat("b", 3)).assignment == rig.owned(1, 3)

    run(scenario)


# Time


def test_a_member_that_is_not_heard_of_is_out() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        await rig.join("b")
        rig.pass_time(SESSION_MS - 1)
        await rig.heartbeat("b", 3)
        rig.pass_time(1)
        answer = await rig.heartbeat("b", 3)
        assert (answer.member_epoch, answer.assignment) == (4, rig.owned(0, 1, 2, 3))
        assert await refusal(rig.heartbeat("a", 2)) is Reason.UNKNOWN_MEMBER_ID

    run(scenario)


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_member_that_gives_nothing_up_is_out(is_moved: bool) -> None:
    """Its heartbeats alone do not help; a change of the coordinator gives it its time once more."""

    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        await rig.join("b")
        await rig.heartbeat("a", 2)
        if is_moved:
            rig.pass_time(REBALANCE_MS - 1)
            rig = rig.next()
        rig.pass_time(REBALANCE_MS - 1)
        await rig.heartbeat("a", 2)
        await rig.heartbeat("b", 3)
        rig.pass_time(1)
        assert await refusal(rig.heartbeat("a", 2)) is Reason.UNKNOWN_MEMBER_ID
        assert (await rig.heartbeat("b", 3)).assignment == rig.owned(0, 1, 2, 3)

    run(scenario)


def test_a_member_that_gave_up_in_time_stays() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        await rig.join("b")
        await rig.heartbeat("a", 2)
        await rig.heartbeat("a", 2, owned=rig.owned(0, 2))
        rig.pass_time(REBALANCE_MS)
        assert (await rig.heartbeat("a", 3)).member_epoch == 3

    run(scenario)


def test_after_a_move_every_member_has_a_whole_session() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        rig.pass_time(SESSION_MS - 1)
        rig = rig.next()
        rig.pass_time(SESSION_MS - 1)
        assert (await rig.heartbeat("a", 2)).member_epoch == 2
        rig.pass_time(SESSION_MS)
        assert await refusal(rig.heartbeat("a", 2)) is Reason.UNKNOWN_MEMBER_ID

    run(scenario)


def test_a_static_member_may_be_away_for_a_session() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a", instance_id="one")
        await rig.heartbeat("a", -2, instance_id="one")
        rig.pass_time(SESSION_MS - 1)
        answer = await rig.join("a2", instance_id="one")
        assert (answer.member_epoch, answer.assignment) == (2, rig.owned(0, 1, 2, 3))
        await rig.heartbeat("a2", -2, instance_id="one")
        rig.pass_time(SESSION_MS)
        assert (await rig.coordinator.list_groups())[0].state == "Empty"

    run(scenario)


def test_a_session_whose_end_could_not_be_stored_ends_later() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        submit = rig.host.submit
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refused.set_exception(Refused(Reason.NOT_ENOUGH_REPLICAS))
        rig.host.submit = lambda records: refused  # type: ignore[method-assign]
        rig.pass_time(SESSION_MS)
        rig.host.submit = submit  # type: ignore[method-assign]
        assert (await rig.coordinator.list_groups())[0].state == "Stable"
        rig.pass_time(SESSION_MS)
        assert (await rig.coordinator.list_groups())[0].state == "Empty"

    run(scenario)


def test_members_learn_of_new_partitions() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        rig.catalog.grow("t", 5)
        rig.coordinator.topic_changed("t")
        answer = await rig.heartbeat("a", 2)
        assert (answer.member_epoch, answer.assignment) == (3, rig.owned(0, 1, 2, 3, 4))
        # Also those that were added while nobody coordinated the group.
        rig.catalog.grow("t", 6)
        answer = await rig.next().heartbeat("a", 3)
        assert answer.assignment == rig.owned(0, 1, 2, 3, 4, 5)

    run(scenario)


@pytest.mark.parametrize("is_moved", [False, True])
def test_an_expression_is_looked_up_with_the_next_heartbeat(is_moved: bool) -> None:
    """Also by the next coordinator, which does not know that nobody has done so."""

    async def scenario() -> None:
        rig = Rig()
        joined = await rig.join("a", topics=None, expression="t.*")
        assert (joined.member_epoch, joined.assignment) == (1, {})
        if is_moved:
            rig = rig.next()
        answer = await rig.heartbeat("a", 1)
        assert (answer.member_epoch, answer.assignment) == (2, rig.owned(0, 1, 2, 3))

    run(scenario)


def test_expressions_are_looked_up_again_after_a_while() -> None:
    """Also without news of topics: a heartbeat does it, once per interval."""

    async def scenario() -> None:
        rig = Rig(consumer_regex_refresh_interval_ms=60_000)
        await rig.join("a", topics=None, expression="t.*")
        await rig.heartbeat("a", 1, owned={})
        await rig.heartbeat("a", 2, owned=rig.owned(0, 1, 2, 3))
        rig.catalog.make("tt", 1)
        for _ in range(2):
            rig.clock.ms += 29_000
            assert (await rig.heartbeat("a", 2)).member_epoch == 2
        rig.clock.ms += 2_000
        answer = await rig.heartbeat("a", 2, owned=rig.owned(0, 1, 2, 3))
        assert answer.member_epoch == 3
        assert len(answer.assignment or {}) == 2

    run(scenario)


# Types


def test_a_group_with_classic_members_is_not_a_consumer_group() -> None:
    async def scenario() -> None:
        rig = Rig(consumer_migration=MigrationPolicy.DOWNGRADE)
        await rig.classic_member()
        for epoch in (0, 1, -1):
            request = rig.heartbeat("a", epoch, topics=frozenset({"t"}), owned={})
            assert await refusal(request) is Reason.GROUP_ID_NOT_FOUND
        assert (await rig.coordinator.list_groups())[0].group_type == "classic"
        assert await rig.coordinator.describe_consumer(G) is None

    run(scenario)


def test_an_empty_classic_group_becomes_a_consumer_group_with_its_offsets() -> None:
    async def scenario() -> None:
        rig = Rig()
        member_id = await rig.classic_member()
        assert await rig.commit(member_id, 1, 0) == [None]
        await rig.coordinator.leave(G, [Departure(member_id)])
        assert (await rig.join("a")).member_epoch == 2
        for each in (rig, rig.next()):
            each.host.state.validate()
            (listed,) = await each.coordinator.list_groups()
            assert (listed.group_type, listed.state) == ("consumer", "Stable")
            assert await each.committed() == 7
            assert await each.coordinator.describe(G) is None

    run(scenario)


def test_an_empty_consumer_group_becomes_a_classic_group_with_its_offsets() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        assert await rig.commit("a", 2, 0) == [None]
        await rig.heartbeat("a", -1)
        await rig.classic_member()
        for each in (rig, rig.next()):
            each.host.state.validate()
            (listed,) = await each.coordinator.list_groups()
            assert (listed.group_type, listed.state) == ("classic", "Stable")
            assert await each.committed() == 7
            assert await refusal(each.heartbeat("a", 2)) is Reason.GROUP_ID_NOT_FOUND

    run(scenario)


def test_classic_requests_to_a_consumer_group_are_refused() -> None:
    async def scenario() -> None:
        rig = Rig(consumer_migration=MigrationPolicy.DISABLED)
        await rig.join("a")
        with pytest.raises(AssertionError, match="INCONSISTENT_GROUP_PROTOCOL"):
            await rig.classic_member()
        unknown = Reason.UNKNOWN_MEMBER_ID
        sync = Sync(group_id=G, member_id=MemberId("a"), generation=1, assignments={})
        assert (await rig.coordinator.sync(sync)).refused is unknown
        with pytest.raises(Refused) as refused:
            rig.coordinator.heartbeat(G, MemberId("a"), None, 1)
        assert refused.value.reason is unknown
        assert await rig.coordinator.leave(G, [Departure(MemberId("b"))]) == [unknown]
        assert (await rig.heartbeat("a", 2)).member_epoch == 2

    run(scenario)


# Offsets


def test_commits_are_fenced_by_the_epochs_of_their_partitions() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        await rig.join("b")
        await rig.heartbeat("a", 2)
        stale = Reason.STALE_MEMBER_EPOCH
        # What it gives up is still its own.
        assert await rig.commit("a", 2, 0, 1) == [None, None]
        assert await refusal(rig.commit("a", 3, 0)) is stale
        await rig.heartbeat("a", 2, owned=rig.owned(0, 2))
        await rig.heartbeat("b", 3)
        # It has not heard of epoch 3 yet: what it kept is its own, and the rest is not.
        assert await rig.commit("a", 2, 0, 2) == [None, None]
        # One partition that moved refuses the others with it.
        assert await refusal(rig.commit("a", 2, 0, 1)) is stale
        assert await refusal(rig.commit("b", 2, 1)) is stale
        # With its newest epoch it may commit all that is not another's.
        assert await rig.commit("a", 3, 0, 1) == [None, stale]
        assert await rig.commit("b", 3, 1) == [None]
        assert await refusal(rig.commit("c", 2, 0)) is Reason.UNKNOWN_MEMBER_ID
        assert await refusal(rig.commit("", -1, 0)) is Reason.UNKNOWN_MEMBER_ID
        old = rig.commit("a", 3, 0, knows_member_epochs=False)
        assert await refusal(old) is Reason.UNSUPPORTED_VERSION

    run(scenario)


def test_anybody_may_commit_for_a_group_without_members() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        await rig.heartbeat("a", -1)
        assert await rig.commit("", -1, 0) == [None]
        assert await refusal(rig.commit("a", 2, 0)) is Reason.UNKNOWN_MEMBER_ID

    run(scenario)


def test_offsets_are_read_by_members_of_the_present_epoch() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        await rig.commit("a", 2, 0)
        a = MemberId("a")
        assert await rig.committed() == 7
        assert await rig.committed(member_id=a, member_epoch=2) == 7
        stale = rig.committed(member_id=a, member_epoch=3)
        assert await refusal(stale) is Reason.STALE_MEMBER_EPOCH
        unknown = rig.committed(member_id=MemberId("b"), member_epoch=2)
        assert await refusal(unknown) is Reason.UNKNOWN_MEMBER_ID

    run(scenario)


def test_offsets_of_what_the_group_reads_stay() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        await rig.commit("a", 2, 0)
        subscribed = [Reason.GROUP_SUBSCRIBED_TO_TOPIC]
        assert await rig.coordinator.remove_offsets(G, [(T, 0)]) == subscribed
        rig.clock.ms += 10_000
        await rig.coordinator.expire()
        assert await rig.committed() == 7
        await rig.heartbeat("a", 2, topics=frozenset({"u"}))
        assert await rig.coordinator.remove_offsets(G, [(T, 0)]) == [None]
        assert await rig.committed() is None

    run(scenario)


def test_an_empty_group_is_forgotten_with_its_offsets() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        await rig.commit("a", 2, 0)
        await rig.heartbeat("a", -1)
        await rig.coordinator.expire()
        assert await rig.committed() == 7
        rig.clock.ms += 1_000
        await rig.coordinator.expire()
        assert await rig.coordinator.list_groups() == []
        assert list(rig.next().host.state.group_ids()) == []

    run(scenario)


# Administration


def test_a_group_with_members_is_not_deleted() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a", expression=None)
        await rig.commit("a", 2, 0)
        assert await rig.coordinator.remove_groups([G]) == [Reason.NON_EMPTY_GROUP]
        await rig.heartbeat("a", -1)
        assert await rig.coordinator.remove_groups([G]) == [None]
        for each in (rig, rig.next()):
            assert await each.coordinator.list_groups() == []
            assert await each.committed() is None

    run(scenario)


def test_a_group_is_described() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a", instance_id="one", rack_id="r", client_host="/h")
        await rig.join("b")
        await rig.heartbeat("a", 2, instance_id="one")
        described = await rig.coordinator.describe_consumer(G)
        assert described is not None
        assert (described.state, described.assignor) == ("Reconciling", "in-turn")
        assert (described.epoch, described.target_epoch) == (3, 3)
        a, b = described.members
        assert (a.member_id, a.member_epoch, a.instance_id, a.rack_id) == ("a", 2, "one", "r")
        assert (a.topics, a.expression, a.client_id) == (frozenset({"t"}), None, "c")
        # With what it still has to give up.
        assert (a.assignment, a.target) == (rig.owned(0, 1, 2, 3), rig.owned(0, 2))
        assert (b.assignment, b.target) == ({}, rig.owned(1, 3))

    run(scenario)
