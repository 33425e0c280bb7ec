"""A group with members moves from the classic protocol to the new one (KIP-848), and back."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.groups.commands import (
    Departure,
    Join,
    JoinAnswer,
    MemberProtocol,
    Sync,
    SyncAnswer,
)
from penstock.groups.settings import MigrationPolicy
from penstock.groups.subscriptions import read_assignment, write_assignment
from penstock.groups.transitions import GroupState
from penstock.model.errors import Reason, Refused
from penstock.model.ids import MemberId
from tests.consumer_metadata import write_subscription
from tests.unit.groups.test_consumer_coordinator import G, refusal, run
from tests.unit.groups.test_consumer_coordinator import Rig as ConsumerRig

SESSION_MS = 10_000
REBALANCE_MS = 30_000
OVER_MS = 1


class Rig(ConsumerRig):
    async def join_classic(
        self, member_id: str = "", owned: Mapping[str, list[int]] | None = None, **fields: Any
    ) -> JoinAnswer:
        metadata = write_subscription(fields.pop("topics", ["t"]), owned)
        names = fields.pop("protocols", ("range",))
        command: dict[str, Any] = {
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": tuple(MemberProtocol(name, metadata) for name in names),
            "takes_member_id": False,
        }
        join = Join(group_id=G, member_id=MemberId(member_id), **(command | fields))
        return await self.coordinator.join(join)

    async def sync_classic(
        self, member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None
    ) -> SyncAnswer:
        command = Sync(
            group_id=G,
            member_id=MemberId(member_id),
            generation=generation,
            assignments=assignments or {},
        )
        return await self.coordinator.sync(command)

    async def assigned(self, member_id: str, generation: int) -> set[int]:
        answer = await self.sync_classic(member_id, generation)
        assert answer.refused is None
        read = read_assignment(answer.assignment)
        assert read is not None
        return set(read.partitions.get("t", ()))

    def beat_classic(self, member_id: str, generation: int) -> Reason | None:
        try:
            self.coordinator.heartbeat(G, MemberId(member_id), None, generation)
        except Refused as refused:
            return refused.reason
        return None

    async def stable_classic(self, **assigned: list[int]) -> None:
        """A classic group of members of these ids, in generation 1, led by the first one."""
        joins = [asyncio.ensure_future(self._join_as(name)) for name in assigned]
        await asyncio.gather(*joins)
        given = {name: write_assignment(3, {"t": ps}) for name, ps in assigned.items()}
        syncs = [self.sync_classic(name, 1, given) for name in assigned]
        assert all(answer.refused is None for answer in await asyncio.gather(*syncs))

    async def _join_as(self, member_id: str) -> JoinAnswer:
        # The broker makes ids: by the instance's name here, without its unique end.
        self.coordinator._new_member_id = lambda _: MemberId(member_id)  # type: ignore[method-assign]
        return await self.join_classic()

    async def type_of_group(self) -> tuple[str, str]:
        (listed,) = await self.coordinator.list_groups()
        return listed.group_type, listed.state


async def upgraded_rig() -> Rig:
    """x and y speak the classic protocol; a has just come with the new one."""
    rig = Rig()
    await rig.stable_classic(x=[0, 1], y=[2, 3])
    answer = await rig.join("a")
    assert (answer.member_epoch, answer.assignment) == (2, {})
    return rig


def test_a_classic_group_becomes_a_consumer_group_and_its_members_stay() -> None:
    async def scenario() -> None:
        rig = await upgraded_rig()
        for each in (rig, rig.next()):
            each.host.state.validate()
            assert await each.type_of_group() == ("consumer", "Reconciling")
            described = await each.coordinator.describe_consumer(G)
            assert described is not None
            assert {m.member_id: m.is_classic for m in described.members} == {
                "x": True,
                "y": True,
                "a": False,
            }
            assert each.host.state.metadata(G) is None
            assert each.beat_classic("x", 1) is Reason.REBALANCE_IN_PROGRESS

    run(scenario)


def test_nobody_gets_a_partition_before_a_classic_member_gave_it_up() -> None:
    async def scenario() -> None:
        rig = await upgraded_rig()
        assert (await rig.heartbeat("a", 2, owned={})).assignment is None
        joined = await rig.join_classic("x")
        assert (joined.refused, joined.generation, joined.leader) == (None, 2, "")
        kept = await rig.assigned("x", 2)
        assert len(kept) == 1
        assert (await rig.heartbeat("a", 2, owned={})).assignment == rig.owned(*({0, 1} - kept))

    run(scenario)


def test_a_cooperative_member_keeps_its_epoch_until_it_gave_up() -> None:
    async def scenario() -> None:
        rig = await upgraded_rig()
        assert (await rig.join_classic("x", {"t": [0, 1]})).generation == 1
        kept = await rig.assigned("x", 1)
        assert rig.beat_classic("x", 1) is Reason.REBALANCE_IN_PROGRESS
        assert (await rig.join_classic("x", {"t": sorted(kept)})).generation == 2
        assert await rig.assigned("x", 2) == kept
        assert rig.beat_classic("x", 2) is None

    run(scenario)


def test_who_waits_for_a_classic_group_is_told_to_join_again() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.stable_classic(x=[0, 1], y=[2, 3])
        # y does not come, so x waits.
        waiting = asyncio.ensure_future(rig.join_classic("x", {"t": [0, 1]}))
        await asyncio.sleep(0)
        await rig.join("a")
        answer = await waiting
        assert (answer.refused, answer.member_id) == (Reason.REBALANCE_IN_PROGRESS, "x")
        # It still has what it was assigned.
        assert (await rig.heartbeat("a", 2, owned={})).assignment is None

    run(scenario)


def test_what_a_member_named_counts_where_its_assignment_was_reset() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.stable_classic(x=[0, 1, 2, 3])
        assert (await rig.join_classic("x", {"t": [0, 1, 2, 3]})).generation == 2
        group = rig.coordinator._classic.get(G)
        assert group.state is GroupState.COMPLETING_REBALANCE
        waiting = asyncio.ensure_future(rig.join_classic("x", {"t": [0, 1]}))
        await asyncio.wait([waiting])
        # A new member lets the rebalance begin again, which resets assignments.
        late = asyncio.ensure_future(rig._join_as("z"))
        await asyncio.sleep(0)
        assert group.members[MemberId("x")].assignment == b""
        answer = await rig.join("a")
        held = rig.host.state.modern(G).currents[MemberId("x")].assigned
        assert {p for epochs in held.values() for p in epochs} == {0, 1}
        given = {p for ps in (answer.assignment or {}).values() for p in ps}
        assert not given & {0, 1}
        await late

    run(scenario)


def test_an_instance_that_changes_its_protocol_amid_a_rebalance_lets_the_group_assign() -> None:
    """It reads what it read before, and the generation has no assignment yet."""

    async def scenario() -> None:
        rig = Rig()
        await rig.join_classic(instance_id="i")
        answer = await rig.join("a", instance_id="i")
        assert answer.member_epoch == 2
        assert answer.assignment == rig.owned(0, 1, 2, 3)

    run(scenario)


def test_the_group_is_classic_again_once_the_last_new_member_left() -> None:
    async def scenario() -> None:
        rig = await upgraded_rig()
        for name in "xy":
            await rig.join_classic(name)
        await rig.heartbeat("a", -1)
        assert await rig.type_of_group() == ("classic", "PreparingRebalance")
        rig.host.state.validate()
        assert rig.beat_classic("x", 2) is Reason.REBALANCE_IN_PROGRESS
        joined = await asyncio.gather(rig.join_classic("x"), rig.join_classic("y"))
        assert [answer.generation for answer in joined] == [3, 3]
        assert {answer.leader for answer in joined} == {"x"}

    run(scenario)


def test_a_member_that_was_behind_loses_nothing_when_the_group_moves_back() -> None:
    async def scenario() -> None:
        rig = await upgraded_rig()
        await rig.join_classic("y")
        # x has not joined since the move up.
        await rig.heartbeat("a", -1)
        assert rig.beat_classic("x", 1) is Reason.REBALANCE_IN_PROGRESS
        assert rig.beat_classic("y", 1) is Reason.ILLEGAL_GENERATION
        assert await rig.commit("x", 1, 0) == [None]
        await asyncio.gather(rig.join_classic("x"), rig.join_classic("y"))
        assert rig.beat_classic("x", 1) is Reason.ILLEGAL_GENERATION

    run(scenario)


def test_a_member_that_was_behind_keeps_its_epoch_when_the_group_moves_up_again() -> None:
    async def scenario() -> None:
        rig = await upgraded_rig()
        await rig.heartbeat("a", -1)
        await rig.join("b")
        rig.host.state.validate()
        assert rig.beat_classic("x", 1) is Reason.REBALANCE_IN_PROGRESS
        assert await rig.commit("x", 1, 0, 1) == [None, None]

    run(scenario)


def test_the_next_coordinator_goes_on_with_the_rebalance_of_a_group_that_moved_back() -> None:
    async def scenario() -> None:
        rig = await upgraded_rig()
        for name in "xy":
            await rig.join_classic(name)
        await rig.heartbeat("a", -1)
        following = rig.next()
        assert await following.type_of_group() == ("classic", "PreparingRebalance")
        assert following.beat_classic("x", 2) is Reason.REBALANCE_IN_PROGRESS

    run(scenario)


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_new_member_that_is_out_of_time_ends_the_consumer_group(is_moved: bool) -> None:
    async def scenario() -> None:
        rig = await upgraded_rig()
        rig = rig.next() if is_moved else rig
        for name in "xy":
            await rig.join_classic(name)
            await rig.sync_classic(name, 2)
        for _ in range(10):
            rig.pass_time(5_000)
            for name in "xy":
                rig.beat_classic(name, 2)
        assert (await rig.type_of_group())[0] == "classic"
        assert rig.beat_classic("x", 2) is Reason.REBALANCE_IN_PROGRESS

    run(scenario)


def test_a_classic_member_has_its_own_session() -> None:
    async def scenario() -> None:
        rig = await upgraded_rig()
        rig.pass_time(SESSION_MS + OVER_MS)
        described = await rig.coordinator.describe_consumer(G)
        assert described is not None
        assert [member.member_id for member in described.members] == ["a"]

    run(scenario)


@pytest.mark.parametrize("step", ["join", "sync"])
def test_a_classic_member_that_only_heartbeats_is_out(step: str) -> None:
    """It was told to join, or it has joined and has to sync."""

    async def scenario() -> None:
        rig = await upgraded_rig()
        await rig.join_classic("y")
        await rig.sync_classic("y", 2)
        generation = 1
        if step == "sync":
            generation = (await rig.join_classic("x")).generation
        for _ in range(REBALANCE_MS // 5_000):
            assert rig.beat_classic("x", generation) is not Reason.UNKNOWN_MEMBER_ID
            rig.beat_classic("y", 2)
            rig.pass_time(5_000)
        assert rig.beat_classic("x", generation) is Reason.UNKNOWN_MEMBER_ID

    run(scenario)


def test_commits_of_classic_members_are_fenced_by_their_generation() -> None:
    async def scenario() -> None:
        rig = await upgraded_rig()
        assert await rig.commit("x", 1, 0, knows_member_epochs=False) == [None]
        assert await refusal(rig.commit("x", 2, 0)) is Reason.ILLEGAL_GENERATION
        await rig.join_classic("x")
        (moved,) = {0, 1} - await rig.assigned("x", 2)
        await rig.heartbeat("a", 2, owned={})
        # It is another's by now.
        assert await refusal(rig.commit("x", 1, moved)) is Reason.ILLEGAL_GENERATION
        assert await rig.commit("x", 2, moved) == [Reason.ILLEGAL_GENERATION]

    run(scenario)


POLICIES = [
    (MigrationPolicy.UPGRADE, True, False),
    (MigrationPolicy.DOWNGRADE, False, True),
    (MigrationPolicy.DISABLED, False, False),
]


@pytest.mark.parametrize(("policy", "allows_upgrade", "_"), POLICIES)
def test_the_policy_says_whether_a_group_may_move_up(
    policy: MigrationPolicy, allows_upgrade: bool, _: bool
) -> None:
    async def scenario() -> None:
        rig = Rig(consumer_migration=policy)
        await rig.stable_classic(x=[0, 1, 2, 3])
        if allows_upgrade:
            assert (await rig.join("a")).member_epoch == 2
        else:
            assert await refusal(rig.join("a")) is Reason.GROUP_ID_NOT_FOUND
            assert rig.beat_classic("x", 1) is None

    run(scenario)


@pytest.mark.parametrize(("policy", "_", "allows_downgrade"), POLICIES)
def test_the_policy_says_whether_a_group_may_move_back(
    policy: MigrationPolicy, _: bool, allows_downgrade: bool
) -> None:
    async def scenario() -> None:
        rig = Rig(consumer_migration=policy)
        await rig.join("a")
        joined = await rig.join_classic("x")
        if policy is MigrationPolicy.DISABLED:
            assert joined.refused is Reason.INCONSISTENT_GROUP_PROTOCOL
            return
        await rig.sync_classic("x", 3)
        await rig.heartbeat("a", -1)
        assert await rig.type_of_group() == (
            ("classic", "PreparingRebalance") if allows_downgrade else ("consumer", "Assigning")
        )
        # Either way it gets what is free now.
        assert rig.beat_classic("x", joined.generation) is Reason.REBALANCE_IN_PROGRESS

    run(scenario)


def test_classic_members_alone_in_a_consumer_group_get_what_is_free() -> None:
    async def scenario() -> None:
        rig = Rig(consumer_migration=MigrationPolicy.UPGRADE)
        await rig.join("a")
        await rig.join_classic("x")
        await rig.heartbeat("a", -1)
        generation = (await rig.join_classic("x")).generation
        assert await rig.assigned("x", generation) == {0, 1, 2, 3}
        assert rig.beat_classic("x", generation) is None
        rig.catalog.grow("t", 6)
        rig.coordinator.topic_changed("t")
        assert rig.beat_classic("x", generation) is Reason.REBALANCE_IN_PROGRESS
        generation = (await rig.join_classic("x")).generation
        assert await rig.assigned("x", generation) == {0, 1, 2, 3, 4, 5}

    run(scenario)


def test_an_operator_removes_members_of_both_protocols() -> None:
    async def scenario() -> None:
        rig = await upgraded_rig()
        gone = [Departure(MemberId(name)) for name in ("a", "x", "nobody")]
        outcomes = await rig.coordinator.leave(G, gone)
        assert outcomes == [None, None, Reason.UNKNOWN_MEMBER_ID]
        assert await rig.type_of_group() == ("classic", "PreparingRebalance")
        described = await rig.coordinator.describe(G)
        assert described is not None
        assert [member.member_id for member in described.members] == ["y"]

    run(scenario)


def test_an_instance_that_was_replaced_is_fenced_when_it_leaves() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a")
        first = await rig.join_classic(instance_id="i")
        second = await rig.join_classic(instance_id="i")
        assert first.member_id != second.member_id
        gone = [Departure(first.member_id, "i"), Departure(MemberId(""), "other")]
        outcomes = await rig.coordinator.leave(G, gone)
        assert outcomes == [Reason.FENCED_INSTANCE_ID, Reason.UNKNOWN_MEMBER_ID]

    run(scenario)


@pytest.mark.parametrize("is_settled", [True, False])
def test_an_instance_that_comes_back_with_the_classic_protocol_may_end_the_new_one(
    is_settled: bool,
) -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.join("a", instance_id="i")
        if not is_settled:
            # It waits for what the other has to give up.
            await rig.join_classic("x")
        joined = await rig.join_classic(instance_id="i")
        assert joined.refused is None
        state = "Stable" if is_settled else "PreparingRebalance"
        assert await rig.type_of_group() == ("classic", state)
        if is_settled:
            assert await rig.assigned(joined.member_id, joined.generation) == {0, 1, 2, 3}

    run(scenario)


def test_what_can_not_be_stored_moves_nothing() -> None:
    async def scenario() -> None:
        rig = Rig()
        await rig.stable_classic(x=[0, 1, 2, 3])
        rig.host.is_ready = False
        assert await refusal(rig.join("a")) is Reason.COORDINATOR_LOAD_IN_PROGRESS
        rig.host.is_ready = True
        assert rig.beat_classic("x", 1) is None
        assert await rig.type_of_group() == ("classic", "Stable")

    run(scenario)


@pytest.mark.parametrize("data", [b"\x00", b"\x00\x00\x00\x00\x00\x01"])
def test_an_assignment_that_can_not_be_read_keeps_the_group_classic(data: bytes) -> None:
    async def scenario() -> None:
        rig = Rig()
        joined = await rig.join_classic()
        await rig.sync_classic(joined.member_id, 1, {joined.member_id: data})
        assert await refusal(rig.join("a")) is Reason.GROUP_ID_NOT_FOUND
        assert rig.beat_classic(joined.member_id, 1) is None

    run(scenario)


@pytest.mark.parametrize(("assignor", "is_moved"), [("mine", False), ("cooperative-sticky", True)])
def test_data_of_an_own_assignor_would_be_lost(assignor: str, is_moved: bool) -> None:
    async def scenario() -> None:
        rig = Rig()
        joined = await rig.join_classic(protocols=(assignor,))
        own = write_assignment(0, {"t": [0]})[:-4] + b"\x00\x00\x00\x01x"
        await rig.sync_classic(joined.member_id, 1, {joined.member_id: own})
        if is_moved:
            assert (await rig.join("a")).member_epoch == 2
        else:
            assert await refusal(rig.join("a")) is Reason.GROUP_ID_NOT_FOUND

    run(scenario)
