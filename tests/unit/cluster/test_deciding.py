"""Any node takes a change: it reaches the controller, once, whatever happens on the way."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import count
from uuid import UUID

import pytest

from penstock.cluster import deciding
from penstock.cluster.config_decisions import BrokerResource, Edit, Operation, TopicResource
from penstock.cluster.deciding import APPEND
from penstock.cluster.metadata_group import METADATA_KEY
from penstock.cluster.records import (
    BrokerStored,
    ClusterRecord,
    TopicRemoved,
    TopicStored,
    broker_to_json,
)
from penstock.cluster.registration import REGISTER
from penstock.cluster.topic import Assignment, Topic
from penstock.cluster.topic_decisions import Grown, Growth, NewTopic
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, Term, TopicId, TopicName
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


def lose_answers(node: FakeNode, times: int, then: Callable[[], None] = lambda: None) -> None:
    """The next calls of this node do their work, and their answers get lost; `then` something
    happens before it asks again."""
    number = count(1)

    def lose(method: str) -> None:
        if method != APPEND:
            return
        lost = next(number)
        if lost == times:
            then()
        if lost <= times:
            raise Refused(Reason.REQUEST_TIMED_OUT, "the connection broke")

    node.exchange.on_answer = lose


def commit(group: Group, *records: ClusterRecord) -> None:
    """Somebody else changes the metadata."""
    group.commit(records)
    for node in group.nodes.values():
        node.host.reload()


def stored(group: Group, name: str, partitions: int = 1) -> TopicStored:
    """A topic as somebody else makes it."""
    assignments = (Assignment((BrokerId(0),), (broker(0).replica_id,)),) * partitions
    topic = Topic(
        name=TopicName(name),
        topic_id=TopicId(UUID(int=len(group.log) + 1)),
        assignments=assignments,
        configs={},
        internal=False,
    )
    return TopicStored(topic=topic)


def topic_of(node: FakeNode, name: str) -> Topic:
    topic = node.cluster.topic(name)
    assert topic is not None
    return topic


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
        lose_answers(nodes[1], 1)
        grown, _ = await cluster.grow_topics([Growth(name="t", partitions=5)])
        assert isinstance(grown["t"], Grown)
        assert grown["t"].first == 2
        lose_answers(nodes[1], 1)
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


def test_a_creation_happens_once_even_if_its_topic_is_deleted_before_it_asks_again() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        made: list[TopicId] = []

        def delete() -> None:
            made.append(topic_of(nodes[0], "t").topic_id)
            commit(group, TopicRemoved(topic_id=made[0]))

        lose_answers(nodes[1], 1, delete)
        outcomes, _ = await nodes[1].cluster.create_topics([new("t")])
        outcome = outcomes["t"]
        assert isinstance(outcome, Topic)
        assert [outcome.topic_id] == made
        assert names(nodes[0]) == []

    run(test)


@pytest.mark.parametrize("lost", [1, 3])
def test_a_growth_happens_once_even_if_its_topic_is_made_again_before_it_asks_again(
    lost: int,
) -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        await nodes[0].cluster.create_topics([new("t")])
        before = topic_of(nodes[0], "t").topic_id
        lose_answers(
            nodes[1],
            lost,
            lambda: commit(group, TopicRemoved(topic_id=before), stored(group, "t", 1)),
        )
        outcomes, _ = await nodes[1].cluster.grow_topics([Growth(name="t", partitions=3)])
        outcome = outcomes["t"]
        assert isinstance(outcome, Grown)
        assert outcome.topic.topic_id == before
        assert topic_of(nodes[0], "t").partitions == 1

    run(test)


def test_a_deletion_happens_once_even_if_its_topic_is_made_again_before_it_asks_again() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        await nodes[0].cluster.create_topics([new("t")])
        before = topic_of(nodes[0], "t").topic_id
        lose_answers(nodes[1], 1, lambda: commit(group, stored(group, "t")))
        outcomes, _ = await nodes[1].cluster.delete_topics([TopicName("t")])
        assert [outcome.topic_id for outcome in outcomes if isinstance(outcome, Topic)] == [before]
        assert names(nodes[0]) == ["t"]

    run(test)


def test_an_edit_happens_once_even_if_somebody_takes_it_back_before_it_asks_again() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        await nodes[0].cluster.create_topics([new("t")])
        before = topic_of(nodes[0], "t")
        lose_answers(nodes[1], 1, lambda: commit(group, TopicStored(topic=before)))
        edit = Edit("cleanup.policy", Operation.APPEND, "compact")
        assert await nodes[1].cluster.edit_configs([(TopicResource("t"), [edit])]) == [None]
        assert topic_of(nodes[0], "t") == before

    run(test)


def test_equal_records_of_somebody_else_are_not_taken_for_its_own() -> None:
    """Two brokers remove the same topic at once: one of them did, and the other one did not."""

    async def test(group: Group, nodes: Nodes) -> None:
        await nodes[0].cluster.create_topics([new("t")])
        removed = TopicRemoved(topic_id=topic_of(nodes[0], "t").topic_id)
        asked = count()

        async def lost_on_the_way(_: BrokerId, payload: bytes) -> bytes:
            if next(asked) == 0:
                commit(group, removed)
                raise Refused(Reason.REQUEST_TIMED_OUT, "the connection broke")
            return await append(BrokerId(1), payload)

        append = nodes[0].exchange.handlers[APPEND]
        nodes[0].exchange.handlers[APPEND] = lost_on_the_way
        (outcome,), _ = await nodes[1].cluster.delete_topics([TopicName("t")])
        assert isinstance(outcome, Refused)
        assert outcome.reason == Reason.UNKNOWN_TOPIC_OR_PARTITION

    run(test)


def test_what_was_lost_on_the_way_is_sent_again_as_it_was() -> None:
    """It may arrive in the end: then both of them are for the same place, and one is refused."""

    async def test(group: Group, nodes: Nodes) -> None:
        append = nodes[0].exchange.handlers[APPEND]
        sent: list[bytes] = []

        async def lost_on_the_way(_: BrokerId, payload: bytes) -> bytes:
            sent.append(payload)
            if len(sent) == 1:
                raise Refused(Reason.REQUEST_TIMED_OUT, "the connection broke")
            return await append(BrokerId(1), payload)

        nodes[0].exchange.handlers[APPEND] = lost_on_the_way
        outcomes, _ = await nodes[1].cluster.create_topics([new("t")])
        assert outcomes["t"] == topic_of(nodes[0], "t")
        assert sent == [sent[0]] * 2
        end = len(group.log)
        answer = json.loads(await append(BrokerId(1), sent[0]))
        assert answer == {"end": end, "done": False}

    run(test)


def test_an_old_controller_that_knows_less_says_nothing_about_what_is_under_way() -> None:
    async def test(group: Group, nodes: Nodes) -> None:
        append = nodes[0].exchange.handlers[APPEND]
        sent: list[bytes] = []

        async def late(_: BrokerId, payload: bytes) -> bytes:
            sent.append(payload)
            if len(sent) == 1:
                raise Refused(Reason.REQUEST_TIMED_OUT, "the connection broke")
            if len(sent) == 2:
                return json.dumps({"end": len(group.log) - 1, "done": False}).encode()
            # What was under way arrives before what was sent later.
            await append(BrokerId(1), sent[0])
            return await append(BrokerId(1), payload)

        nodes[0].exchange.handlers[APPEND] = late
        outcomes, _ = await nodes[1].cluster.create_topics([new("t")])
        assert outcomes["t"] == topic_of(nodes[0], "t")

    run(test)


def test_what_is_not_in_the_log_any_more_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot has taken the place of what this node did not see."""
    monkeypatch.setattr(deciding, "RETRY_MS", 1)

    async def test(group: Group, nodes: Nodes) -> None:
        def forget() -> None:
            commit(group, TopicRemoved(topic_id=topic_of(nodes[0], "t").topic_id))
            group.log_start = len(group.log)

        lose_answers(nodes[1], 1, forget)
        with pytest.raises(Refused) as caught:
            await nodes[1].cluster.create_topics([new("t")])
        assert caught.value.reason == Reason.REQUEST_TIMED_OUT
        assert names(nodes[0]) == []

    run(test)


def test_without_a_controller_what_may_have_been_done_is_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client may take a refusal for leave to ask again."""
    monkeypatch.setattr(deciding, "RETRY_MS", 1)

    async def test(group: Group, nodes: Nodes) -> None:
        lose_answers(nodes[1], 1, lambda: group.elect(None))
        with pytest.raises(Refused) as caught:
            await nodes[1].cluster.create_topics([new("t")])
        assert caught.value.reason == Reason.REQUEST_TIMED_OUT

    run(test)


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_a_controller_could_not_commit_is_done_once(is_kept: bool) -> None:
    """The next controller has it or not, and whichever it is, it is not done a second time."""

    async def test(group: Group, nodes: Nodes) -> None:
        await nodes[1].cluster.create_topics([new("t")])
        group.held = asyncio.Event()
        group.keeps_uncommitted = is_kept
        growing = asyncio.ensure_future(
            nodes[0].cluster.grow_topics([Growth(name="t", partitions=3)])
        )
        while not nodes[0].host.replica.uncommitted:
            await asyncio.sleep(0)
        before = topic_of(nodes[1], "t")
        group.elect(2)
        group.held.set()
        await nodes[0].host.idle()
        group.held = None
        again = stored(group, "t", 1)
        commit(group, TopicRemoved(topic_id=before.topic_id), again)
        outcomes, _ = await growing
        outcome = outcomes["t"]
        assert isinstance(outcome, Grown)
        made_of = before if is_kept else again.topic
        assert outcome.topic.topic_id == made_of.topic_id
        assert topic_of(nodes[2], "t").partitions == (1 if is_kept else 3)

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
