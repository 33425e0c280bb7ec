"""Proves for which groups a heartbeat stands, and that it stops standing for one at once."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.model.ids import BrokerId, Term
from penstock.replication import heartbeats
from penstock.replication.exchange import Exchange
from penstock.replication.leaders import LeaderInfo
from penstock.replication.peer_beats import IDLE_TURNS
from tests.unit.replication.peers_kit import NotingReplica, Wire, group, replica_id


class Nodes:
    """Two nodes with replicas of the same groups; the first leads, the second follows."""

    def __init__(self, groups: int = 1) -> None:
        self.wire = Wire()
        self.one, self.two = self.wire.exchange(1), self.wire.exchange(2)
        self.leaders = [NotingReplica(number) for number in range(groups)]
        self.followers = [NotingReplica(number) for number in range(groups)]
        for leader, follower in zip(self.leaders, self.followers, strict=True):
            leader.lead(5, [1])
            follower.follow(1, 5)
            self.one.add(leader)
            self.two.add(follower)

    @property
    def leader(self) -> NotingReplica:
        return self.leaders[0]

    @property
    def follower(self) -> NotingReplica:
        return self.followers[0]

    async def tick(self, count: int = 1, *exchanges: Exchange) -> None:
        for _ in range(count):
            for exchange in exchanges or (self.one, self.two):
                exchange.tick()
                await self.wire.settle()

    async def connect(self) -> None:
        self.wire.connect(1, 2)
        await self.wire.settle()


def play(test: Callable[[Nodes], Awaitable[None]], groups: int = 1) -> None:
    async def go() -> None:
        await test(Nodes(groups))

    asyncio.run(go())


def test_a_beat_is_heard_and_its_answer_counts() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        await nodes.tick(2)
        assert nodes.follower.heard > 0
        assert (2, 5) in nodes.leader.acknowledged
        assert nodes.leader.refused == []

    play(test)


def test_whoever_does_not_follow_refuses_and_the_leader_hears_of_it_at_every_tick() -> None:
    async def test(nodes: Nodes) -> None:
        nodes.follower.follow(1, 6)
        await nodes.connect()
        await nodes.tick(3)
        assert nodes.leader.acknowledged == []
        assert nodes.leader.refused == [(2, 5)] * 3
        nodes.follower.follow(1, 5)
        await nodes.tick(2)
        assert nodes.leader.acknowledged == [(2, 5)] * 2

    play(test)


def test_a_node_without_the_group_neither_accepts_nor_refuses() -> None:
    async def test(nodes: Nodes) -> None:
        nodes.two.remove(group(0))
        await nodes.connect()
        await nodes.tick(5)
        assert nodes.leader.acknowledged == []
        assert nodes.leader.refused == []
        nodes.two.add(nodes.follower)
        await nodes.tick(2)
        assert nodes.leader.acknowledged

    play(test)


def test_losing_leadership_ends_it_before_the_next_beat() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        await nodes.tick(2)
        heard, counted = nodes.follower.heard, len(nodes.leader.acknowledged)
        nodes.leader.follow(2, 6)
        nodes.one.announce(nodes.leader)
        await nodes.tick(2 * IDLE_TURNS)
        assert nodes.follower.heard == heard
        assert len(nodes.leader.acknowledged) == counted

    play(test)


def test_an_answer_of_an_earlier_term_does_not_count_for_a_later_one() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        await nodes.tick(2)
        nodes.leader.acknowledged.clear()
        # The follower has not heard of the new term yet.
        nodes.leader.lead(7, [1])
        nodes.one.announce(nodes.leader)
        await nodes.tick(IDLE_TURNS)
        assert nodes.leader.acknowledged == []
        assert (2, 7) in nodes.leader.refused
        nodes.follower.follow(1, 7)
        await nodes.tick(2)
        assert set(nodes.leader.acknowledged) == {(2, 7)}

    play(test)


def test_another_incarnation_starts_from_nothing() -> None:
    """What a node led before it died must not count after it came back."""

    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        await nodes.tick(2)
        nodes.wire.cut(1, 2)
        again = nodes.wire.exchange(1)
        again.add(NotingReplica(0))
        await nodes.connect()
        nodes.follower.heard = nodes.follower.ticks = 0
        await nodes.tick(2 * IDLE_TURNS, again, nodes.two)
        assert nodes.follower.heard == 0
        assert nodes.follower.ticks == 2 * IDLE_TURNS

    play(test)


def test_a_follower_that_hears_its_leader_rests() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        await nodes.tick(2)
        nodes.follower.ticks = 0
        await nodes.tick(10)
        assert nodes.follower.ticks == 0
        # It is still asked now and then, and its timer starts from there.
        assert nodes.follower.heard >= 2

    play(test)


def test_a_follower_whose_leader_falls_silent_gets_every_tick() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        await nodes.tick(3)
        # What arrived last still counts for one tick.
        await nodes.tick(1, nodes.two)
        nodes.follower.ticks = 0
        await nodes.tick(7, nodes.two)
        assert nodes.follower.ticks == 7
        nodes.wire.cut(1, 2)
        await nodes.tick(7, nodes.two)
        assert nodes.follower.ticks == 14

    play(test)


@pytest.mark.parametrize("is_announced", [True, False])
def test_a_resting_follower_that_leaves_its_leader_is_noticed(is_announced: bool) -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        await nodes.tick(3)
        nodes.follower.follow(3, 6)
        if is_announced:
            nodes.two.announce(nodes.follower)
        nodes.leader.refused.clear()
        ticks = 1 if is_announced else IDLE_TURNS
        await nodes.tick(ticks)
        assert (2, 5) in nodes.leader.refused
        nodes.follower.ticks = 0
        nodes.leader.acknowledged.clear()
        await nodes.tick(10)
        assert nodes.follower.ticks == 10
        assert nodes.leader.acknowledged == []

    play(test)


def test_a_leader_is_never_left_without_ticks() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        await nodes.tick(10)
        assert nodes.leader.ticks == 10

    play(test)


def test_a_leader_that_may_rest_gets_no_ticks_until_it_is_announced() -> None:
    async def test(nodes: Nodes) -> None:
        nodes.leader.may_rest = True
        await nodes.tick(10)
        assert nodes.leader.ticks == 1
        nodes.leader.may_rest = False
        nodes.one.announce(nodes.leader)
        await nodes.tick(10)
        assert nodes.leader.ticks == 11

    # This many that none is looked at again meanwhile.
    play(test, groups=2 * heartbeats.REPAIR_TICKS)


def test_resting_leaders_are_looked_at_now_and_then_a_few_at_a_time() -> None:
    async def test(nodes: Nodes) -> None:
        for leader in nodes.leaders:
            leader.may_rest = True
        await nodes.tick(1)
        most = 0
        for _ in range(heartbeats.REPAIR_TICKS + 1):
            before = sum(leader.ticks for leader in nodes.leaders)
            await nodes.tick(1, nodes.one)
            most = max(most, sum(leader.ticks for leader in nodes.leaders) - before)
        assert most == 2
        assert min(leader.ticks for leader in nodes.leaders) >= 2

    play(test, groups=2 * heartbeats.REPAIR_TICKS)


def test_idle_groups_take_turns_and_none_waits_longer_than_a_round() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        await nodes.tick(10)
        for leader in nodes.leaders:
            leader.acknowledged.clear()
        await nodes.tick(IDLE_TURNS + 1)
        counts = [len(leader.acknowledged) for leader in nodes.leaders]
        assert min(counts) >= 1
        assert max(counts) <= 2

    play(test, groups=10)


def test_idle_groups_do_not_wait_for_the_turns_of_those_that_are_gone() -> None:
    """Longer than an election time-out, and their leaders would resign for want of answers."""

    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        await nodes.tick(10)
        kept = 2
        for gone in nodes.leaders[kept:]:
            nodes.one.remove(gone.key)
            nodes.two.remove(gone.key)
        for leader in nodes.leaders[:kept]:
            leader.acknowledged.clear()
        for _ in range(10):
            await nodes.tick(2 * IDLE_TURNS)
            for leader in nodes.leaders[:kept]:
                assert leader.acknowledged
                leader.acknowledged.clear()

    play(test, groups=200)


def test_large_appends_in_front_of_a_beat_count_as_one() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        await nodes.tick(3)
        nodes.follower.ticks = 0
        for _ in range(10):
            # Anything but a beat.
            nodes.one.set_metadata_applied(nodes.one.metadata_applied(BrokerId(1)))
            await nodes.wire.settle()
            await nodes.tick(1, nodes.two)
        assert nodes.follower.ticks == 0

    play(test)


def test_everybody_learns_who_leads_members_or_not() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        third = nodes.wire.exchange(3)
        nodes.wire.connect(1, 3)
        await nodes.wire.settle()
        expected = LeaderInfo(Term(5), BrokerId(1), (1,))
        for exchange in (nodes.one, nodes.two, third):
            assert exchange.leaders.get(group(0)) == expected
        nodes.leader.lead(6, [1, 2])
        nodes.one.announce(nodes.leader)
        await nodes.wire.settle()
        for exchange in (nodes.one, nodes.two, third):
            assert exchange.leaders.get(group(0)) == LeaderInfo(Term(6), BrokerId(1), (1, 2))

    play(test)


def test_the_full_list_repairs_what_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "REPAIR_TICKS", 5)

    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        await nodes.tick(2)
        # A bug: nobody announced these.
        nodes.leader.in_sync_nodes = [BrokerId(1), BrokerId(2)]
        nodes.two._heartbeats._peers[BrokerId(1)].led_by_peer.clear()
        await nodes.tick(110)
        info = nodes.two.leaders.get(group(0))
        assert info is not None
        assert info.in_sync == (1, 2)
        assert nodes.two._heartbeats._peers[BrokerId(1)].led_by_peer

    play(test)


def test_one_frame_each_way_per_tick() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        await nodes.tick(3)
        nodes.wire.frames = 0
        await nodes.tick(10)
        assert nodes.wire.frames == 20

    play(test, groups=20)


def test_a_bug_in_one_group_costs_the_others_nothing() -> None:
    async def test(nodes: Nodes) -> None:
        def fail(*_: object) -> bool:
            raise RuntimeError("a bug")

        bugs: list[dict[str, object]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: bugs.append(context))
        nodes.leaders[0].heartbeat_acknowledged = fail  # type: ignore[method-assign, assignment]
        nodes.leaders[1].tick = fail  # type: ignore[method-assign, assignment]
        nodes.followers[2].heartbeat_received = fail  # type: ignore[method-assign, assignment]
        await nodes.connect()
        await nodes.tick(5)
        assert bugs
        assert nodes.leaders[3].acknowledged
        assert nodes.leaders[3].ticks == 5
        assert nodes.followers[3].heard
        assert nodes.leaders[2].acknowledged == []

    play(test, groups=4)


def test_a_directory_is_part_of_who_speaks() -> None:
    async def test(nodes: Nodes) -> None:
        nodes.follower.follows = replica_id(1)._replace(directory=replica_id(9).directory)
        await nodes.connect()
        await nodes.tick(2)
        assert nodes.leader.acknowledged == []
        assert nodes.leader.refused

    play(test)
