"""Any node takes a change: it reaches the controller, once, whatever happens on the way."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from penstock.cluster import deciding
from penstock.cluster.config_decisions import BrokerResource
from penstock.cluster.deciding import APPEND
from penstock.cluster.metadata_group import METADATA_KEY
from penstock.cluster.records import BrokerStored, TopicRemoved, broker_to_json
from penstock.cluster.registration import REGISTER
from penstock.cluster.topic import Topic
from penstock.cluster.topic_decisions import Growth, NewTopic
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, Term, TopicName
from penstock.replication.leaders import LeaderInfo
from tests.unit.cluster.fakes import FakeNode, Group, broker, start_node

Nodes = list[FakeNode]


def run(test: Callable[[Group, Nodes], Awaitable[None]], *, nodes: int = 3) -> None:
    async def body() -> None:
        group = Group()
        started = [await start_node(group, number) for number in range(nodes)]
        await test(group, started)

    asyncio.run(body())


def new(name: str, partitions: int = 1) -> NewTopic:
    return NewTopic(name=name, partitions=partitions, configs={})


def lose_answers(node: FakeNode, times: int, *, after: int = 0) -> None:
    """The next calls of this node, but for the first few, do their work, and their answers get
    lost."""
    number = count()

    def lose(method: str) -> None:
        if method == APPEND and after <= next(number) < after + times:
            raise Refused(Reason.REQUEST_TIMED_OUT, "the connection broke")

    node.exchange.on_answer = lose


def names(node: FakeNode) -> list[str]:
    return sorted(topic.name for topic in node.cluster.topics())


def test_a_change_from_any_node_is_known_on_all() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        for number, node in enumerate(nodes):
            outcomes, offset = await node.cluster.create_topics([new(f"t{number}")])
            assert isinstance(outcomes[f"t{number}"], Topic)
            assert offset == len(group.log)
        assert [names(node) for node in nodes] == [["t0", "t1", "t2"]] * 3
        assert [node.cluster.controller_id for node in nodes] == [0, 0, 0]
        assert nodes[0].exchange.calls == []

    run(test)


def test_changes_from_all_nodes_at_once_all_come_about() -> None:
    """Each may have to be decided again, since another one came first."""

    async def test(group: Group, nodes: Nodes) -> None:
        await asyncio.gather(
            *(
                node.cluster.create_topics([new(f"t{node.number}-{number}")])
                for node in nodes
                for number in range(5)
            )
        )
        assert len(names(nodes[1])) == 15

    run(test)


def test_of_two_that_make_the_same_topic_one_is_refused() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        made = await asyncio.gather(*(node.cluster.create_topics([new("t")]) for node in nodes))
        outcomes = [outcomes["t"] for outcomes, _ in made]
        refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
        assert [refusal.reason for refusal in refused] == [Reason.TOPIC_ALREADY_EXISTS] * 2

    run(test)


def test_a_lost_answer_is_no_refusal() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        cluster = nodes[1].cluster
        lose_answers(nodes[1], 1)
        outcomes, _ = await cluster.create_topics([new("t", 2)])
        assert isinstance(outcomes["t"], Topic)
        # The first answer only says how far the metadata is.
        lose_answers(nodes[1], 1, after=1)
        outcomes, _ = await cluster.grow_topics([Growth(name="t", partitions=5)])
        assert isinstance(outcomes["t"], Topic)
        lose_answers(nodes[1], 1, after=1)
        deleted, _ = await cluster.delete_topics([TopicName("t")])
        assert isinstance(deleted[0], Topic)
        assert names(nodes[0]) == []

    run(test)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_deletion_on_a_node_that_is_behind_deletes_the_topic_of_today(lost: int) -> None:
    """The topic was deleted and made again before: that the old one is gone is not its doing, even
    if it does not hear what became of its first try."""

    async def test(group: Group, nodes: Nodes) -> None:
        await nodes[1].cluster.create_topics([new("t", 1)])
        nodes[1].feed.is_lagging = True
        await nodes[0].cluster.delete_topics([TopicName("t")])
        await nodes[0].cluster.create_topics([new("t", 2)])
        nodes[1].exchange.calls.clear()
        lose_answers(nodes[1], lost)
        deleting = asyncio.ensure_future(nodes[1].cluster.delete_topics([TopicName("t")]))
        while len(nodes[1].exchange.calls) <= lost:
            await asyncio.sleep(0)
        nodes[1].feed.is_lagging = False
        nodes[1].feed.follow()
        (deleted,), _ = await deleting
        assert isinstance(deleted, Topic)
        assert deleted.partitions == 2
        assert names(nodes[0]) == []

    run(test)


def test_a_second_try_never_uses_an_id_again() -> None:
    """Someone deleted the topic between the lost answer and the second try."""

    async def test(group: Group, nodes: Nodes) -> None:
        ids: list[object] = []

        def delete_and_lose(method: str) -> None:
            nodes[1].exchange.on_answer = lambda method: None
            topic = nodes[0].cluster.topic("t")
            assert topic is not None
            ids.append(topic.topic_id)
            group.commit([TopicRemoved(topic_id=topic.topic_id)])
            nodes[0].host.reload()
            raise Refused(Reason.REQUEST_TIMED_OUT, "the connection broke")

        nodes[1].exchange.on_answer = delete_and_lose
        outcomes, _ = await nodes[1].cluster.create_topics([new("t")])
        outcome = outcomes["t"]
        assert isinstance(outcome, Topic)
        assert outcome.topic_id not in ids
        assert nodes[0].cluster.topic("t") == outcome

    run(test)


def test_a_new_controller_is_found() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        group.elect(None)
        creating = asyncio.ensure_future(nodes[1].cluster.create_topics([new("t")]))
        await asyncio.sleep(0.03)
        assert not creating.done()
        group.elect(2)
        outcomes, _ = await creating
        assert isinstance(outcomes["t"], Topic)
        assert nodes[1].cluster.controller_id == 2
        assert nodes[2].cluster.controller_id == 2

    run(test)


def test_a_controller_that_loses_leadership_hands_its_change_on() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        group.held = asyncio.Event()
        creating = asyncio.ensure_future(nodes[0].cluster.create_topics([new("t")]))
        while not nodes[0].host.replica.uncommitted:
            await asyncio.sleep(0)
        group.elect(2)
        group.held.set()
        outcomes, _ = await creating
        assert isinstance(outcomes["t"], Topic)
        assert nodes[0].exchange.calls[-1] == (2, APPEND)

    run(test)


def test_without_a_controller_it_is_refused_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "RETRY_MS", 1)

    async def test(group: Group, nodes: Nodes) -> None:
        group.elect(None)
        with pytest.raises(Refused) as caught:
            await nodes[1].cluster.create_topics([new("t")])
        assert caught.value.reason == Reason.NOT_CONTROLLER

    run(test)


def test_a_dead_controller_is_none() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        nodes[0].is_up = False
        assert nodes[1].cluster.controller_id == -1
        assert nodes[1].cluster.alive_brokers() == [1, 2]

    run(test)


def test_a_full_disk_of_the_controller_is_told_at_once() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        group.is_disk_full = True
        for node in nodes[:2]:
            with pytest.raises(Refused) as caught:
                await node.cluster.create_topics([new("t")])
            assert caught.value.reason == Reason.STORAGE_ERROR

    run(test)


def test_a_controller_that_steps_down_for_its_disk_asks_the_next_one() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        group.held = asyncio.Event()
        creating = asyncio.ensure_future(nodes[0].cluster.create_topics([new("t")]))
        await asyncio.sleep(0.01)
        group.is_disk_full = True
        group.held.set()
        # Those who wait hear of the failure in the turn after the step down.
        group.elect(1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        group.is_disk_full = False
        outcomes, _ = await creating
        assert isinstance(outcomes["t"], Topic)
        assert names(nodes[0]) == ["t"]

    run(test)


def test_what_a_lagging_node_decides_is_decided_again() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        nodes[1].feed.is_lagging = True
        await nodes[0].cluster.create_topics([new("t")])
        creating = asyncio.ensure_future(nodes[1].cluster.create_topics([new("t")]))
        catching_up = asyncio.ensure_future(nodes[1].cluster.catch_up())
        await asyncio.sleep(0.01)
        assert not creating.done()
        assert not catching_up.done()
        nodes[1].feed.is_lagging = False
        nodes[1].feed.follow()
        outcomes, _ = await creating
        await catching_up
        assert isinstance(outcomes["t"], Refused)
        assert outcomes["t"].reason == Reason.TOPIC_ALREADY_EXISTS

    run(test)


def test_a_refusal_is_checked_with_the_controller_too() -> None:
    """An old copy might refuse what is fine by now."""

    async def test(group: Group, nodes: Nodes) -> None:
        await nodes[0].cluster.create_topics([new("t")])
        nodes[1].feed.is_lagging = True
        await nodes[0].cluster.delete_topics([TopicName("t")])
        creating = asyncio.ensure_future(nodes[1].cluster.create_topics([new("t")]))
        await asyncio.sleep(0.01)
        nodes[1].feed.is_lagging = False
        nodes[1].feed.follow()
        outcomes, _ = await creating
        assert isinstance(outcomes["t"], Topic)

    run(test)


def test_nonsense_of_a_peer_is_refused() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        for payload in (b"", b"[]", b'{"offset": 3}', b'{"offset": -1, "records": [[["x"], {}]]}'):
            for method in (APPEND, REGISTER):
                with pytest.raises(Refused) as caught:
                    await nodes[0].exchange.handlers[method](BrokerId(1), payload)
                assert caught.value.reason == Reason.INVALID_REQUEST

    run(test)


# Registration


async def joiner(group: Group, number: int, directory: str = "") -> FakeNode:
    node = FakeNode(group, number, directory=directory)
    node.feed.is_lagging = True
    await node.cluster.load()
    leader = LeaderInfo(Term(group.term), group.leader or BrokerId(0), ())
    node.exchange.leaders.learn(METADATA_KEY, leader)
    return node


def test_a_node_that_joins_is_registered_once_its_copy_shows_it() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        node = await joiner(group, 3)
        registering = asyncio.ensure_future(node.cluster.register(broker(3)))
        while 3 not in nodes[1].cluster.brokers:
            await asyncio.sleep(0.001)
        assert not registering.done()
        node.feed.is_lagging = False
        node.feed.follow()
        await registering
        assert node.cluster.brokers == nodes[0].cluster.brokers
        before = len(group.log)
        await node.cluster.register(broker(3))
        await nodes[0].cluster.register(broker(0))
        assert len(group.log) == before, "a restart with nothing new writes nothing"

    run(test)


def test_an_empty_disk_takes_the_place_of_a_lost_one() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        old = nodes[2]
        fresh = broker(2, directory="fresh")
        request = json.dumps(broker_to_json(fresh)).encode()
        with pytest.raises(Refused, match="is running with the data directory dir2"):
            await nodes[0].exchange.handlers[REGISTER](BrokerId(2), request)
        old.is_up = False
        again = await joiner(group, 2, "fresh")
        again.feed.is_lagging = False
        await again.cluster.register(fresh)
        assert nodes[0].cluster.brokers[BrokerId(2)] == fresh
        assert nodes[0].cluster.replica_ids([BrokerId(2)]) == [fresh.replica_id]
        wanted = nodes[0].host.replica.wanted
        assert wanted is not None
        assert fresh.replica_id in wanted[0]
        assert broker(2).replica_id not in wanted[0]

    run(test)


def test_the_controller_names_the_members_of_its_group() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        group.commit([BrokerStored(broker=broker(number)) for number in range(3, 7)])
        wanted = nodes[0].host.replica.wanted
        assert wanted is not None
        assert [each.node for each in wanted[0]] == [0, 1, 2, 3, 4]
        assert [each.node for each in wanted[1]] == [5, 6]
        assert nodes[1].host.replica.wanted is None, "only the controller does"
        group.elect(1)
        wanted = nodes[1].host.replica.wanted
        assert wanted is not None
        assert [each.node for each in wanted[0]] == [1, 0, 2, 3, 4]

    run(test)


def test_a_broker_is_drained_and_removed() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        cluster = nodes[1].cluster
        with pytest.raises(Refused, match="drain it first"):
            await cluster.remove_broker(BrokerId(2))
        answers = await cluster.replace_configs(
            [(BrokerResource("2"), {"penstock.drained": "true"})]
        )
        assert answers == [None]
        wanted = nodes[0].host.replica.wanted
        assert wanted is not None
        assert [each.node for each in wanted[1]] == [2]
        await cluster.remove_broker(BrokerId(2))
        assert list(nodes[0].cluster.brokers) == [0, 1]
        assert cluster.dynamic_broker_config("2") == {}

    run(test)


def test_internal_topics_grow_with_the_cluster() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        internal = NewTopic(name="__consumer_offsets", configs={}, internal=True)
        await nodes[0].cluster.create_topics([internal])
        before = len(group.log)
        await nodes[0].cluster.grow_internal_topics()
        assert len(group.log) == before
        for number in (1, 2):
            await start_node(group, number)
        await nodes[0].cluster.grow_internal_topics()
        topic = nodes[0].cluster.topic("__consumer_offsets")
        assert topic is not None
        assert set(topic.assignments[0].replicas) == {0, 1, 2}

    run(test, nodes=1)
