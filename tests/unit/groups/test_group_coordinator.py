"""The coordinator answers after commit, keeps the time, and survives failed writes and restarts."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.groups import coordinator as coordinator_module
from penstock.groups.commands import (
    NO_MEMBER,
    CommitOffsets,
    Departure,
    GroupDescription,
    Join,
    JoinAnswer,
    MemberProtocol,
    OffsetToCommit,
    Sync,
    SyncAnswer,
)
from penstock.groups.coordinator import Coordinator
from penstock.groups.settings import GroupSettings
from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicName
from penstock.replication import alarm_clock
from tests.unit.cluster.fakes import ids_from
from tests.unit.groups.consumer_rig import no_topics
from tests.unit.groups.driver import FakeClock, subscription
from tests.unit.groups.memory_host import MemoryHost

G = GroupId("readers")
T = TopicName("t")
SETTINGS = GroupSettings(initial_rebalance_delay_ms=5, offsets_retention_ms=1_000)


class RealClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class Rig:
    def __init__(self, host: MemoryHost | None = None, clock: Any = None, **settings: int) -> None:
        self.host = host or MemoryHost()
        self.clock = clock or RealClock()
        self.coordinator = Coordinator(
            host=self.host,  # type: ignore[arg-type]
            settings=GroupSettings(
                **{"initial_rebalance_delay_ms": 5, "offsets_retention_ms": 1_000} | settings
            ),
            clock=self.clock,
            # Ids are unique over restarts too.
            new_uuid=ids_from(1 + 1_000 * len(self.host.log)),
            **no_topics(),
        )

    def join(self, member_id: MemberId = NO_MEMBER, **changes: Any) -> asyncio.Task[JoinAnswer]:
        fields: dict[str, Any] = {
            "group_id": G,
            "member_id": member_id,
            "client_id": "client",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": (MemberProtocol("range", subscription("t")),),
            "takes_member_id": False,
        }
        command = Join(**(fields | changes))
        return asyncio.get_running_loop().create_task(self.coordinator.join(command))

    def sync(self, member_id: MemberId, generation: int, **assignments: bytes) -> Any:
        command = Sync(
            group_id=G, member_id=member_id, generation=generation, assignments=assignments
        )
        return asyncio.get_running_loop().create_task(self.coordinator.sync(command))

    def heartbeat(self, member_id: MemberId, generation: int) -> None:
        self.coordinator.heartbeat(G, member_id, None, generation)

    async def first_refusal(self, member_id: MemberId, generation: int) -> Reason:
        """Heartbeats until the answer is not that all is well."""
        while True:
            try:
                self.heartbeat(member_id, generation)
            except Refused as refused:
                return refused.reason
            await asyncio.sleep(0.005)

    async def first_refusal_without_heartbeats(
        self, member_id: MemberId, generation: int
    ) -> Reason:
        """Waits until the member's session is over."""
        while (await self.described()).members:
            await asyncio.sleep(0.005)
        return await self.first_refusal(member_id, generation)

    async def described(self) -> GroupDescription:
        found = await self.coordinator.describe(G)
        assert found is not None
        return found

    def commit(
        self, offset: int, member_id: MemberId = NO_MEMBER, generation: int = -1, **changes: Any
    ) -> asyncio.Task[list[Reason | None]]:
        command = CommitOffsets(
            group_id=G,
            member_id=member_id,
            generation=generation,
            offsets=(OffsetToCommit(T, 0, offset, -1, "note"),),
            **changes,
        )
        return asyncio.get_running_loop().create_task(self.coordinator.commit(command))

    async def committed(self) -> int | None:
        (topic,) = await self.coordinator.fetch(G, [(T, [0])])
        offset = topic.offsets[0].committed
        return None if offset is None else offset.offset

    async def stable(self, **changes: Any) -> MemberId:
        joined = await self.join(**changes)
        synced = await self.sync(joined.member_id, joined.generation)
        assert synced.refused is None
        return joined.member_id


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


async def refusal(work: Awaitable[object]) -> Reason:
    with pytest.raises(Refused) as refused:
        await work
    return refused.value.reason


def test_two_members_share_a_topic() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        joins = await asyncio.gather(rig.join(), rig.join())
        assert [join.generation for join in joins] == [1, 1]
        leader, follower = joins
        assert leader.member_id == f"client-{'0' * 8}-0000-0000-0000-{1:012}"
        waiting = rig.sync(follower.member_id, 1)
        assignments = {leader.member_id: b"one", follower.member_id: b"two"}
        answer: SyncAnswer = await rig.sync(leader.member_id, 1, **assignments)
        assert (answer.assignment, (await waiting).assignment) == (b"one", b"two")
        rig.heartbeat(leader.member_id, 1)
        third = rig.join()
        await asyncio.sleep(0)
        with pytest.raises(Refused) as refused:
            rig.heartbeat(leader.member_id, 1)
        assert refused.value.reason is Reason.REBALANCE_IN_PROGRESS
        rejoined = await asyncio.gather(
            rig.join(leader.member_id), rig.join(follower.member_id), third
        )
        assert {join.generation for join in rejoined} == {2}
        await rig.coordinator.close()

    run(scenario)


def test_a_commit_is_answered_and_seen_only_once_it_is_durable() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        await rig.commit(1)
        rig.host.held = asyncio.Event()
        commit = rig.commit(2)
        await asyncio.sleep(0)
        fetch = asyncio.get_running_loop().create_task(rig.committed())
        done, _ = await asyncio.wait([commit, fetch], timeout=0.02)
        assert not done
        rig.host.held.set()
        assert await commit == [None]
        assert await fetch == 2

    run(scenario)


def test_a_failed_commit_is_retriable_and_leaves_the_old_offset() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        await rig.commit(1)
        rig.host.is_disk_full = True
        assert await refusal(rig.commit(2)) is Reason.NOT_COORDINATOR
        assert await rig.committed() == 1
        rig.host.is_disk_full = False
        await rig.commit(3)
        assert await rig.committed() == 3

    run(scenario)


def test_a_client_that_goes_away_does_not_take_its_commit_along() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        rig.host.held = asyncio.Event()
        commit = rig.commit(7)
        await asyncio.sleep(0.01)
        commit.cancel()
        rig.host.held.set()
        await asyncio.gather(commit, return_exceptions=True)
        assert await rig.committed() == 7

    run(scenario)


def test_a_failed_generation_is_refused_and_the_next_one_works() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        joined = await rig.join()
        rig.host.is_disk_full = True
        answer = await rig.sync(joined.member_id, 1, **{joined.member_id: b"x"})
        assert answer.refused is Reason.NOT_COORDINATOR
        rig.host.is_disk_full = False
        again = await rig.join(joined.member_id)
        assert again.generation == 2
        answer = await rig.sync(joined.member_id, 2, **{joined.member_id: b"x"})
        assert answer.assignment == b"x"

    run(scenario)


def test_who_may_commit() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        member = MemberId("m")
        assert await refusal(rig.commit(1, member, 0)) is Reason.GROUP_ID_NOT_FOUND
        older = rig.commit(1, member, 0, unknown_group=Reason.ILLEGAL_GENERATION)
        assert await refusal(older) is Reason.ILLEGAL_GENERATION
        assert await rig.commit(1) == [None]
        assert await refusal(rig.commit(1, member, 0)) is Reason.UNKNOWN_MEMBER_ID
        member = await rig.stable()
        assert await rig.commit(2, member, 1) == [None]
        assert await refusal(rig.commit(3)) is Reason.UNKNOWN_MEMBER_ID
        assert await refusal(rig.commit(3, member, 0)) is Reason.ILLEGAL_GENERATION
        assert await rig.coordinator.leave(G, [Departure(member)]) == [None]
        assert await rig.commit(4) == [None], "a group without members takes anyone's"

    run(scenario)


def test_members_of_a_stable_group_go_on_after_a_restart() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        member = await rig.stable()
        await rig.commit(5, member, 1)
        again = Rig(MemoryHost(rig.host.log))
        again.coordinator.start()
        again.heartbeat(member, 1)
        assert await again.commit(6, member, 1) == [None]
        described = await again.coordinator.describe(G)
        assert described is not None
        assert (described.state, len(described.members)) == ("Stable", 1)

    run(scenario)


def test_members_that_do_not_return_after_a_restart_expire() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        silent = await rig.stable(session_timeout_ms=400)
        again = Rig(MemoryHost(rig.host.log))
        again.coordinator.start()
        newcomer = await again.join()
        assert newcomer.generation == 2
        assert [m.member_id for m in newcomer.members] == [newcomer.member_id]
        with pytest.raises(Refused):
            again.heartbeat(silent, 1)

    run(scenario)


def test_the_generation_goes_on_counting_after_the_group_was_empty() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        member = await rig.stable()
        await rig.coordinator.leave(G, [Departure(member)])
        again = Rig(MemoryHost(rig.host.log))
        again.coordinator.start()
        assert (await again.join()).generation == 3

    run(scenario)


def test_silent_members_expire_and_heartbeats_prevent_it() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        tickets = [rig.join(session_timeout_ms=600), rig.join(session_timeout_ms=600)]
        alive, silent = [answer.member_id for answer in await asyncio.gather(*tickets)]
        follower = rig.sync(silent, 1)
        await rig.sync(alive, 1)
        await follower
        assert await rig.first_refusal(alive, 1) is Reason.REBALANCE_IN_PROGRESS
        answer = await rig.join(alive)
        assert [member.member_id for member in answer.members] == [alive]

    run(scenario)


def test_a_stalled_process_gives_sessions_a_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a stop of the whole process, heartbeats that lie in sockets count."""
    monkeypatch.setattr(alarm_clock, "GRACE_AFTER_STALL_S", 5.0)

    async def scenario() -> None:
        clock = FakeClock()
        rig = Rig(clock=clock, initial_rebalance_delay_ms=0)
        rig.coordinator.start()
        member = await rig.stable()
        clock.ms += 60_000
        rig.coordinator._alarms._ring()
        rig.heartbeat(member, 1)
        clock.ms += 9_999
        rig.coordinator._alarms._ring()
        rig.heartbeat(member, 1)

    run(scenario)


def test_requests_wait_a_little_for_the_groups_and_are_then_sent_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator_module, "LOADING_WAIT_S", 0.01)

    async def scenario() -> None:
        rig = Rig()
        assert rig.coordinator.is_loading
        loading = Reason.COORDINATOR_LOAD_IN_PROGRESS
        assert await refusal(rig.join()) is loading
        assert await refusal(rig.commit(1)) is loading
        assert await refusal(rig.coordinator.fetch(G, None)) is loading
        assert await refusal(rig.coordinator.list_groups()) is loading
        monkeypatch.setattr(coordinator_module, "LOADING_WAIT_S", 10.0)
        waiting = rig.commit(1)
        await asyncio.sleep(0)
        rig.coordinator.start()
        assert await waiting == [None]

    run(scenario)


def test_a_damaged_partition_is_said_and_never_taken_for_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether its replica was stopped at start or its records can't be read back."""
    monkeypatch.setattr(coordinator_module, "LOADING_WAIT_S", 0.01)

    async def scenario() -> None:
        rig = Rig()
        rig.host.replica.is_leader = False
        rig.host.replica.stopped_because = OSError("file x is damaged")
        rig.coordinator.start()
        unavailable = Reason.COORDINATOR_NOT_AVAILABLE
        assert await refusal(rig.join()) is unavailable
        assert await refusal(rig.coordinator.fetch(G, None)) is unavailable
        rig = Rig()
        rig.host.is_unreadable = True
        rig.coordinator.start()
        loading = Reason.COORDINATOR_LOAD_IN_PROGRESS
        assert await refusal(rig.join()) is loading
        assert await refusal(rig.coordinator.fetch(G, None)) is loading

    run(scenario)


def test_a_follower_sends_everybody_elsewhere() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.host.replica.is_leader = False
        rig.coordinator.start()
        elsewhere = Reason.NOT_COORDINATOR
        assert await refusal(rig.join()) is elsewhere
        assert await refusal(rig.commit(1)) is elsewhere
        assert await refusal(rig.coordinator.fetch(G, None)) is elsewhere
        with pytest.raises(Refused) as refused:
            rig.heartbeat(MemberId("m"), 1)
        assert refused.value.reason is elsewhere
        await rig.coordinator.close()

    run(scenario)


def test_losing_leadership_answers_all_who_wait() -> None:
    """Joins, syncs, commits under way and requests that wait for the load; nothing is left over."""

    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        leader, follower = await asyncio.gather(rig.join(), rig.join())
        sync = rig.sync(follower.member_id, leader.generation)
        join = rig.join(group_id=GroupId("others"))
        rig.host.held = asyncio.Event()
        offsets = (OffsetToCommit(T, 0, 1, -1, ""),)
        simple = CommitOffsets(
            group_id=GroupId("third"), member_id=NO_MEMBER, generation=-1, offsets=offsets
        )
        commit = asyncio.get_running_loop().create_task(rig.coordinator.commit(simple))
        await asyncio.sleep(0)
        rig.host.lose()
        rig.host.held.set()
        elsewhere = Reason.NOT_COORDINATOR
        assert (await sync).refused is elsewhere
        assert (await join).refused is elsewhere
        assert await refusal(commit) is elsewhere
        assert rig.coordinator._alarms._wake_up is None
        assert not list(rig.coordinator._classic)
        assert len(rig.coordinator._alarms._deadlines) == 0

    run(scenario)


def test_members_and_generations_come_back_with_the_leadership() -> None:
    """Also on the node that had it before: a whole new session for everyone who was stored."""

    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        member = await rig.stable(session_timeout_ms=600)
        await rig.commit(3, member, 1)
        rig.host.lose()
        await asyncio.sleep(0.7)
        rig.host.win()
        rig.heartbeat(member, 1)
        assert await rig.committed() == 3
        assert await rig.first_refusal_without_heartbeats(member, 1) is Reason.UNKNOWN_MEMBER_ID

    run(scenario)


def test_closing_answers_whoever_waits_and_refuses_what_comes() -> None:
    async def scenario() -> None:
        rig = Rig(initial_rebalance_delay_ms=10_000)
        rig.coordinator.start()
        join = rig.join()
        await asyncio.sleep(0)
        await rig.coordinator.close()
        assert (await join).refused is Reason.NOT_COORDINATOR
        assert await refusal(rig.commit(1)) is Reason.NOT_COORDINATOR

    run(scenario)


def test_a_waiting_client_that_went_away_disturbs_nobody() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        gone, here = rig.join(), rig.join()
        await asyncio.sleep(0)
        gone.cancel()
        answer = await here
        assert answer.refused is None
        assert answer.generation == 1

    run(scenario)


def test_groups_are_described_listed_and_deleted() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        member = await rig.stable()
        await rig.commit(1, member, 1)
        (listed,) = await rig.coordinator.list_groups()
        assert (listed.group_id, listed.state, listed.protocol_type) == (G, "Stable", "consumer")
        assert await rig.coordinator.remove_groups([G, GroupId("?")]) == [
            Reason.NON_EMPTY_GROUP,
            Reason.GROUP_ID_NOT_FOUND,
        ]
        await rig.coordinator.leave(G, [Departure(member)])
        assert await rig.coordinator.remove_groups([G]) == [None]
        assert await rig.coordinator.list_groups() == []
        assert await rig.coordinator.describe(G) is None
        assert await rig.committed() is None

    run(scenario)


def test_offsets_are_deleted_unless_the_group_reads_the_topic() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        not_found = rig.coordinator.remove_offsets(G, [(T, 0)])
        assert await refusal(not_found) is Reason.GROUP_ID_NOT_FOUND
        member = await rig.stable()
        await rig.commit(1, member, 1)
        subscribed = [Reason.GROUP_SUBSCRIBED_TO_TOPIC]
        assert await rig.coordinator.remove_offsets(G, [(T, 0)]) == subscribed
        await rig.coordinator.leave(G, [Departure(member)])
        assert await rig.coordinator.remove_offsets(G, [(T, 0)]) == [None]
        assert await rig.committed() is None
        await rig.stable(protocol_type="connect")
        non_empty = rig.coordinator.remove_offsets(G, [(T, 0)])
        assert await refusal(non_empty) is Reason.NON_EMPTY_GROUP

    run(scenario)


def test_nothing_is_called_deleted_by_a_coordinator_that_nobody_confirms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator_module, "READ_S_MAX", 0.01)

    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        await rig.commit(1)
        rig.host.confirmed.clear()
        unsure = Reason.COORDINATOR_NOT_AVAILABLE
        other = GroupId("other")
        assert await refusal(rig.coordinator.remove_offsets(G, [(T, 1)])) is unsure
        assert await refusal(rig.coordinator.remove_offsets(other, [(T, 0)])) is unsure
        assert await refusal(rig.coordinator.remove_groups([other])) is unsure
        # What is stored needs no other proof.
        assert await rig.coordinator.remove_offsets(G, [(T, 0)]) == [None]

    run(scenario)


def test_expiry_and_deleted_topics_take_offsets_and_idle_groups_away() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        rig = Rig(clock=clock)
        rig.coordinator.start()
        await rig.commit(1)
        await rig.coordinator.expire()
        assert await rig.committed() == 1
        clock.ms += 1_000
        await rig.coordinator.expire()
        assert await rig.committed() is None
        assert await rig.coordinator.list_groups() == []
        await rig.commit(2)
        await rig.coordinator.remove_topics(lambda topic: topic == "other")
        assert await rig.committed() == 2
        await rig.coordinator.remove_topics(lambda topic: topic == T)
        assert await rig.committed() is None

    run(scenario)


def test_groups_that_nobody_joined_in_the_end_are_forgotten() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.coordinator.start()
        answer = await rig.join(takes_member_id=True, session_timeout_ms=10)
        assert answer.refused is Reason.MEMBER_ID_REQUIRED
        while await rig.coordinator.list_groups():
            await asyncio.sleep(0.005)
        refused = await rig.join(protocols=())
        assert refused.refused is Reason.INCONSISTENT_GROUP_PROTOCOL
        assert await rig.coordinator.list_groups() == []
        unknown = await rig.join(MemberId("m"))
        assert unknown.refused is Reason.UNKNOWN_MEMBER_ID
        assert (await rig.sync(MemberId("m"), 1)).refused is Reason.UNKNOWN_MEMBER_ID
        left = await rig.coordinator.leave(G, [Departure(MemberId("m"))])
        assert left == [Reason.UNKNOWN_MEMBER_ID]

    run(scenario)
