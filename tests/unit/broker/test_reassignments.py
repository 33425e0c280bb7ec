"""Moves are listed, ended when the group is there, and leaderships go to the first replica."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.broker.membership import Membership
from penstock.broker.reassignments import TRANSFER, Moving, Reassignments
from penstock.broker.topics import NewTopic
from penstock.cluster.config_decisions import BrokerResource
from penstock.cluster.topic import Topic
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, Term
from penstock.replication.leaders import LeaderInfo
from tests.unit.broker.fake_disk import Disk, Node
from tests.unit.clocks import ManualClock
from tests.unit.cluster.fakes import Group
from tests.waiting import until

Pairs = list[tuple[Node, Reassignments]]


def run(test: Callable[[Pairs], Awaitable[None]], nodes: int = 3) -> None:
    async def body() -> None:
        group = Group()
        started = [await joined(group, number) for number in range(nodes)]
        await test(started)
        for node, _ in started:
            await node.topics.close()

    asyncio.run(body())


async def joined(group: Group, number: int) -> tuple[Node, Reassignments]:
    node = await Node.join(group, number, Disk())
    reassignments = Reassignments(
        cluster=node.cluster,
        partitions=node.partitions,  # type: ignore[arg-type]
        exchange=node.exchange,  # type: ignore[arg-type]
        clock=ManualClock(),
    )
    return node, reassignments


async def topic_on(node: Node, *places: list[int]) -> Topic:
    wanted = NewTopic(name="t", configs={}, assignments=list(enumerate(places)))
    topic = (await node.topics.create([wanted]))["t"]
    assert isinstance(topic, Topic)
    return topic


def reason(call: Awaitable[object]) -> Awaitable[Reason]:
    async def caught() -> Reason:
        with pytest.raises(Refused) as refused:
            await call
        return refused.value.reason

    return caught()


def test_a_move_is_listed_until_its_leader_ends_it() -> None:
    async def test(pairs: Pairs) -> None:
        (first, moves), (_, elsewhere), (last, at_last) = pairs
        topic = await topic_on(first, [0], [1])
        await elsewhere.reassign("t", 0, [2])
        assert moves.current() == [Moving("t", 0, [2, 0], [2], [0])]
        await until(last.running)
        for node in (first, last):
            node.partitions.get("t", 0).is_reconciled = False
        await moves.review()
        assert elsewhere.current() != [], "its group is not there yet"
        first.partitions.get("t", 0).is_leader = False
        last.partitions.get("t", 0).is_reconciled = True
        await moves.review()
        assert elsewhere.current() != [], "its leader is elsewhere"
        await at_last.review()
        assert elsewhere.current() == []
        now = first.cluster.topic_by_id(topic.topic_id)
        assert now is not None
        assert now.assignments[0].hosts == (2,)

    run(test)


def test_a_cancelled_move_is_listed_no_more() -> None:
    async def test(pairs: Pairs) -> None:
        (first, moves), *_ = pairs
        await topic_on(first, [0])
        await moves.reassign("t", 0, [1, 2])
        assert moves.current() == [Moving("t", 0, [1, 2, 0], [1, 2], [0])]
        await moves.reassign("t", 0, None)
        assert moves.current() == []
        await moves.review()
        now = first.cluster.topic("t")
        assert now is not None
        assert not now.is_moving
        assert await reason(moves.reassign("t", 0, None)) == Reason.NO_REASSIGNMENT_IN_PROGRESS

    run(test)


def test_a_move_that_was_under_way_at_start_is_ended() -> None:
    async def test(pairs: Pairs) -> None:
        (first, moves), *_ = pairs
        await topic_on(first, [0])
        await moves.reassign("t", 0, [0, 1])
        again = Reassignments(
            cluster=first.cluster,
            partitions=first.partitions,  # type: ignore[arg-type]
            exchange=first.exchange,  # type: ignore[arg-type]
            clock=ManualClock(),
        )
        again.start()
        try:
            await again.review()
        finally:
            await again.stop()
        now = first.cluster.topic("t")
        assert now is not None
        assert not now.is_moving

    run(test)


def test_the_controller_gives_internal_topics_more_replicas() -> None:
    async def test(pairs: Pairs) -> None:
        ((first, moves),) = pairs
        await first.topics.ensure_internal("__consumer_offsets", partitions=2, configs={})
        (_, second), (_, third) = [await joined(first.host, number) for number in (1, 2)]
        await second.review()
        assert moves.current() == [], "it is not the controller"
        await moves.review()
        assert len(third.current()) == 2

    run(test, nodes=1)


# Leaderships


def announce(pairs: Pairs, topic: Topic, leader: int, term: int) -> None:
    info = LeaderInfo(Term(term), BrokerId(leader), (leader,))
    for node, _ in pairs:
        node.exchange.leaders.learn(topic.partition_id(0), info)


def test_an_unclean_election_is_needed_only_without_a_leader() -> None:
    async def test(pairs: Pairs) -> None:
        (first, moves), (second, _), _ = pairs
        topic = await topic_on(first, [0, 1])
        announce(pairs, topic, 1, 8)
        healthy = moves.elect("t", 0, 5.0, is_unclean=True)
        assert await reason(healthy) == Reason.ELECTION_NOT_NEEDED
        second.metadata.is_up = False
        orphan = moves.elect("t", 0, 5.0, is_unclean=True)
        assert await reason(orphan) == Reason.ELIGIBLE_LEADERS_NOT_AVAILABLE

    run(test)


def test_leadership_goes_to_the_first_replica() -> None:
    async def test(pairs: Pairs) -> None:
        (first, moves), (second, _), _ = pairs
        topic = await topic_on(first, [0, 1])
        announce(pairs, topic, 1, 8)
        electing = asyncio.ensure_future(moves.elect("t", 0, 60.0))
        await until(lambda: second.partitions.get("t", 0).transfers)
        assert second.partitions.get("t", 0).transfers == [0]
        assert first.exchange.calls[-1] == (1, TRANSFER)
        assert not electing.done()
        announce(pairs, topic, 0, 9)
        await electing
        assert await reason(moves.elect("t", 0, 60.0)) == Reason.ELECTION_NOT_NEEDED

    run(test)


def test_elections_that_can_not_be() -> None:
    async def test(pairs: Pairs) -> None:
        (first, _), (_, moves), _ = pairs
        topic = await topic_on(first, [0, 1])
        announce(pairs, topic, 1, 8)
        unknown = Reason.UNKNOWN_TOPIC_OR_PARTITION
        assert await reason(moves.elect("t", 1, 0.1)) == unknown
        assert await reason(moves.elect("u", 0, 0.1)) == unknown
        assert await reason(moves.elect("t", 0, 0.01)) == Reason.REQUEST_TIMED_OUT
        first.metadata.is_up = False
        unavailable = Reason.PREFERRED_LEADER_NOT_AVAILABLE
        assert await reason(moves.elect("t", 0, 0.1)) == unavailable

    run(test)


def test_a_transfer_that_makes_no_sense_is_refused() -> None:
    async def test(pairs: Pairs) -> None:
        (first, _), *_ = pairs
        for payload in (b"", b"[]", b'["x", 0, 1]', b"[1, 0, 1]"):
            handling = first.exchange.handlers[TRANSFER](BrokerId(1), payload)
            assert await reason(handling) == Reason.INVALID_REQUEST

    run(test)


def test_a_broker_is_removed_by_its_number() -> None:
    async def test(pairs: Pairs) -> None:
        (first, _), *_ = pairs
        membership = Membership(cluster=first.cluster)
        drained = {"penstock.drained": "true"}
        await first.cluster.replace_configs([(BrokerResource("2"), drained)])
        await membership.remove_broker(2)
        assert list(first.cluster.brokers) == [0, 1]

    run(test)
