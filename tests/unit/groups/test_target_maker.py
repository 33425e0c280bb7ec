"""Targets that may take long are made in a worker, and only for what the group is by then."""

import asyncio
import threading
from uuid import UUID

from penstock.groups.assignors import (
    QUICK_WORK_MAX,
    AssignmentSpec,
    GuardedAssignor,
    MemberSubscription,
    is_quick,
)
from penstock.model.errors import Reason
from penstock.model.ids import MemberId
from tests.unit.groups.consumer_rig import InTurn
from tests.unit.groups.test_consumer_coordinator import G, Rig, refusal, run
from tests.waiting import until

WITHIN_S = 20.0


class Held:
    """A site's own assignor, which waits until it may go on."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.specs: list[AssignmentSpec] = []
        self.threads: set[int] = set()
        self.fails = False

    def assign(self, spec: AssignmentSpec) -> object:
        self.specs.append(spec)
        self.threads.add(threading.get_ident())
        assert self.may_go_on.wait(WITHIN_S)
        if self.fails:
            raise ValueError("no idea")
        return InTurn().assign(spec)


def rig_with(held: Held) -> Rig:
    rig = Rig()
    assignors = {"own": GuardedAssignor("own", held.assign)}
    rig.coordinator._consumers._assignors = assignors
    rig.coordinator._consumers.targets._assignors = assignors
    return rig


async def until_made(rig: Rig) -> None:
    targets = rig.coordinator._consumers.targets
    await until(lambda: not targets.is_under_way(G), WITHIN_S)


def test_members_go_on_while_a_worker_assigns() -> None:
    async def scenario() -> None:
        held = Held()
        rig = rig_with(held)
        first = await rig.join("a")
        assert (first.member_epoch, first.assignment) == (1, {})
        assert (await rig.heartbeat("a", 1, owned={})).member_epoch == 1
        held.may_go_on.set()
        await until_made(rig)
        assert held.threads.isdisjoint({threading.get_ident()})
        answer = await rig.heartbeat("a", 1, owned={})
        assert (answer.member_epoch, answer.assignment) == (2, rig.owned(0, 1, 2, 3))

    run(scenario)


def test_what_was_made_for_another_group_is_made_again() -> None:
    async def scenario() -> None:
        held = Held()
        rig = rig_with(held)
        await rig.join("a")
        await until(lambda: bool(held.specs), WITHIN_S)
        await rig.join("b")
        held.may_go_on.set()
        await until_made(rig)
        assert [set(spec.members) for spec in held.specs] == [{"a"}, {"a", "b"}]
        group = rig.host.state.modern(G)
        assert group is not None
        assert (group.epoch, group.target_epoch) == (3, 3)
        group.validate()

    run(scenario)


def test_members_are_told_that_an_assignor_failed() -> None:
    async def scenario() -> None:
        held = Held()
        held.fails = True
        held.may_go_on.set()
        rig = rig_with(held)
        await rig.join("a")
        await until_made(rig)
        request = rig.heartbeat("a", 1, owned={})
        assert await refusal(request) is Reason.UNKNOWN_SERVER_ERROR
        held.fails = False
        await rig.heartbeat("a", 1, owned={})
        await until_made(rig)
        assert (await rig.heartbeat("a", 1, owned={})).member_epoch == 2

    run(scenario)


def test_the_next_coordinator_makes_the_target() -> None:
    async def scenario() -> None:
        held = Held()
        rig = rig_with(held)
        await rig.join("a")
        rig.host.lose()
        await asyncio.sleep(0)
        held.may_go_on.set()
        following = rig.next()
        assert (await following.heartbeat("a", 1, owned={})).member_epoch == 2

    run(scenario)


def test_only_small_groups_and_known_assignors_are_quick() -> None:
    def spec(partitions: int, *, is_homogeneous: bool = True) -> AssignmentSpec:
        member = MemberSubscription(topic_ids=frozenset(), assigned={})
        return AssignmentSpec(
            members={MemberId("a"): member},
            partitions={UUID(int=1): partitions},
            is_homogeneous=is_homogeneous,
        )

    small = QUICK_WORK_MAX // 8 - 1
    assert is_quick(InTurn(), spec(small, is_homogeneous=False))
    assert not is_quick(InTurn(), spec(small + 1, is_homogeneous=False))
    assert is_quick(InTurn(), spec(QUICK_WORK_MAX - 1))
    assert not is_quick(InTurn(), spec(QUICK_WORK_MAX))
    assert not is_quick(GuardedAssignor("own", InTurn().assign), spec(1))
