"""Topics over several brokers: each makes its own replicas, and the answer waits for all."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.broker import topics as topics_module
from penstock.broker.topics import Growth, NewTopic, Topic
from penstock.cluster.reassignment_decisions import Ended, Move
from penstock.cluster.records import BrokerRemoved, BrokerStored
from penstock.model.ids import BrokerId, Offset, TopicName
from tests.unit.broker.fake_disk import Disk, Node
from tests.unit.cluster.fakes import Group, broker
from tests.waiting import until

Nodes = list[Node]


def run(test: Callable[[Nodes], Awaitable[None]], nodes: int = 3) -> None:
    async def body() -> None:
        group = Group()
        started = [await Node.join(group, number, Disk()) for number in range(nodes)]
        await test(started)
        for node in started:
            await node.topics.close()

    asyncio.run(body())


def new(name: str, partitions: int = 1, factor: int = -1) -> NewTopic:
    return NewTopic(name=name, partitions=partitions, configs={}, replication_factor=factor)


def reported(nodes: Nodes) -> list[int]:
    return [node.exchange.reported[-1] for node in nodes]


async def settled() -> None:
    """Counted in turns of the loop, which come however long this process had to wait for them."""
    for _ in range(20):
        await asyncio.sleep(0.002)


def test_each_broker_makes_the_replicas_that_belong_to_it() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes[1].topics.create([new("all", 2), new("one", 3, factor=1)])
        await settled()
        assert [node.running()["all"] for node in nodes] == [2, 2, 2]
        assert [node.running()["one"] for node in nodes] == [1, 1, 1]
        founders = [broker(number).replica_id for number in range(3)]
        assert sorted(nodes[0].partitions.get("all", 0).wanted) == founders

    run(test)


def test_the_answer_waits_for_the_others_and_for_leaders() -> None:
    async def test(nodes: Nodes) -> None:
        outcomes = await nodes[1].topics.create([new("t", 2)])
        assert isinstance(outcomes["t"], Topic)
        assert reported(nodes) == [len(nodes[1].host.log)] * 3
        assert all(
            nodes[1].exchange.leaders.get(key) is not None for key in outcomes["t"].partition_ids()
        )
        await nodes[1].topics.grow([Growth(name="t", partitions=3)])
        assert reported(nodes) == [len(nodes[1].host.log)] * 3
        assert [node.running() for node in nodes] == [{"t": 3}] * 3
        await nodes[1].topics.delete([TopicName("t")])
        assert reported(nodes) == [len(nodes[1].host.log)] * 3
        assert [node.running() for node in nodes] == [{}] * 3

    run(test)


def test_the_time_of_the_asker_ends_the_waiting_and_not_the_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics_module, "EVERYWHERE_TIMEOUT_S", 3_600)

    async def test(nodes: Nodes) -> None:
        topics, late = nodes[0].topics, nodes[2].metadata.feed
        late.is_lagging = True
        outcomes = await asyncio.wait_for(topics.create([new("t", 2)], wait_s=0.01), 60)
        assert isinstance(outcomes["t"], Topic)
        await asyncio.wait_for(topics.grow([Growth(name="t", partitions=3)], wait_s=0.01), 60)
        assert [node.running() for node in nodes] == [{"t": 3}, {"t": 3}, {}]
        late.is_lagging = False
        await topics.create([new("next")])
        assert nodes[2].running() == {"t": 3, "next": 1}
        late.is_lagging = True
        await asyncio.wait_for(topics.delete([TopicName("t")], wait_s=0.01), 60)
        assert [node.running() for node in nodes[:2]] == [{"next": 1}] * 2

    run(test)


def test_a_node_that_is_no_broker_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removed one still runs, and hears no more."""
    monkeypatch.setattr(topics_module, "EVERYWHERE_TIMEOUT_S", 3_600)

    async def test(nodes: Nodes) -> None:
        nodes[0].host.commit([BrokerRemoved(broker=BrokerId(2))])
        nodes[2].metadata.feed.is_lagging = True
        await asyncio.wait_for(nodes[0].topics.create([new("t")]), 60)
        nodes[1].metadata.feed.is_lagging = True
        offset = Offset(len(nodes[0].host.log) + 1)
        assert not await nodes[0].cluster.known_everywhere(offset, 0.01)

    run(test)


def test_a_broker_reports_a_change_after_its_replicas_exist() -> None:
    async def test(nodes: Nodes) -> None:
        node = nodes[2]
        seen: list[tuple[int, int]] = []
        report = node.exchange.set_metadata_applied

        def watch(offset: int) -> None:
            seen.append((offset, len(node.partitions.all())))
            report(offset)

        node.exchange.set_metadata_applied = watch  # type: ignore[method-assign]
        await nodes[0].topics.create([new("t", 4)])
        await settled()
        assert seen[-1] == (len(node.host.log), 4)
        assert node.exchange.reported == sorted(node.exchange.reported)

    run(test)


def test_a_full_disk_elsewhere_does_not_take_a_topic_back() -> None:
    async def test(nodes: Nodes) -> None:
        nodes[2].disk.room = 0
        outcomes = await nodes[2].topics.create([new("t", 2)])
        assert isinstance(outcomes["t"], Topic), "the others hold it"
        await settled()
        assert [node.running() for node in nodes] == [{"t": 2}, {"t": 2}, {}]
        nodes[2].disk.room = 10
        await settled()
        assert nodes[2].running() == {"t": 2}

    run(test)


def test_a_deleted_topic_is_gone_everywhere() -> None:
    async def test(nodes: Nodes) -> None:
        topic = (await nodes[0].topics.create([new("t", 2)]))["t"]
        assert isinstance(topic, Topic)
        await nodes[2].topics.delete([topic.topic_id])
        await settled()
        assert [node.running() for node in nodes] == [{}, {}, {}]
        assert [node.disk.directories for node in nodes] == [set(), set(), set()]
        assert nodes[1].exchange.leaders.get(topic.partition_id(0)) is None

    run(test)


def test_a_creation_does_not_wait_for_leaders_of_a_topic_that_is_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics_module, "LEADERS_TIMEOUT_S", 3_600)

    async def test(nodes: Nodes) -> None:
        for node in nodes:
            # Nobody ever hears of a leader.
            monkeypatch.setattr(node.exchange.leaders, "learn", lambda key, info: True)
        creation = asyncio.ensure_future(nodes[0].topics.create([new("t", 2)]))
        await until(lambda: nodes[0].topics._leaders._waiting)
        await nodes[1].topics.delete([TopicName("t")])
        outcomes = await asyncio.wait_for(creation, 60)
        assert isinstance(outcomes["t"], Topic), "it was made"
        assert not nodes[0].topics._leaders._waiting

    run(test)


def test_a_creation_does_not_wait_for_leaders_of_a_topic_that_is_gone_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics_module, "LEADERS_TIMEOUT_S", 3_600)

    async def test(nodes: Nodes) -> None:
        for node in nodes:
            monkeypatch.setattr(node.exchange.leaders, "learn", lambda key, info: True)
        known_everywhere = nodes[0].cluster.known_everywhere

        async def known_late(offset: Offset, timeout_s: float) -> bool:
            await nodes[1].topics.delete([TopicName("t")])
            return await known_everywhere(offset, timeout_s)

        monkeypatch.setattr(nodes[0].cluster, "known_everywhere", known_late)
        outcomes = await asyncio.wait_for(nodes[0].topics.create([new("t")]), 60)
        assert isinstance(outcomes["t"], Topic), "it was made"

    run(test)


def test_a_moved_replica_is_given_up_only_when_the_move_is_over() -> None:
    async def test(nodes: Nodes) -> None:
        wanted = NewTopic(name="t", configs={}, assignments=[(0, [0])])
        await nodes[0].topics.create([wanted])
        await nodes[1].cluster.move(Move("t", 0, [2]))
        await settled()
        assert [node.running() for node in nodes] == [{"t": 1}, {}, {"t": 1}]
        assert nodes[0].partitions.get("t", 0).wanted == [broker(2).replica_id]
        topic = nodes[0].cluster.topic("t")
        assert topic is not None
        await nodes[2].cluster.end_moves([Ended(topic.partition_id(0), topic.assignments[0])])
        await settled()
        assert [node.running() for node in nodes] == [{}, {}, {"t": 1}]
        assert nodes[0].disk.directories == set()

    run(test)


@pytest.mark.parametrize("next_target", [[1], None], ids=["moved on", "moved back"])
def test_who_was_on_the_way_of_a_move_keeps_its_replica_across_a_restart(
    next_target: list[int] | None,
) -> None:
    """It may be a member of the group already, and the only one besides a node that is down."""

    async def test(nodes: Nodes) -> None:
        wanted = NewTopic(name="t", configs={}, assignments=[(0, [0])])
        await nodes[0].topics.create([wanted])
        await nodes[0].cluster.move(Move("t", 0, [2]))
        await settled()
        await nodes[0].cluster.move(Move("t", 0, next_target))
        await settled()
        assert nodes[2].running() == {"t": 1}
        nodes[2].metadata.is_up = False
        again = await Node.join(nodes[2].host, 2, nodes[2].disk)
        assert again.running() == {"t": 1}
        await end_move(nodes[0])
        await settled()
        assert again.running() == {}
        await again.topics.close()

    run(test)


async def end_move(node: Node) -> None:
    topic = node.cluster.topic("t")
    assert topic is not None
    await node.cluster.end_moves([Ended(topic.partition_id(0), topic.assignments[0])])


def test_a_replica_that_moved_away_and_back_stays_where_that_is_heard_of_late() -> None:
    """Its group counts on what it acknowledged since it came back."""

    async def test(nodes: Nodes) -> None:
        wanted = NewTopic(name="t", configs={}, assignments=[(0, [1])])
        await nodes[0].topics.create([wanted])
        replica, feed, log = nodes[1].partitions.get("t", 0), nodes[1].metadata.feed, nodes[0].host
        feed.is_lagging = True
        await nodes[0].cluster.move(Move("t", 0, [2]))
        await end_move(nodes[0])
        moved_at = len(log.log)
        await nodes[0].cluster.move(Move("t", 0, [1]))
        await end_move(nodes[0])
        feed.follow_to(moved_at)
        await settled()
        assert nodes[1].running() == {"t": 1}
        feed.is_lagging = False
        feed.follow()
        await settled()
        assert nodes[1].partitions.get("t", 0) is replica
        assert [node.running() for node in nodes] == [{}, {"t": 1}, {}]

    run(test)


def test_a_moved_replica_stays_until_its_node_can_ask_whether_it_came_back() -> None:
    async def test(nodes: Nodes) -> None:
        wanted = NewTopic(name="t", configs={}, assignments=[(0, [1])])
        await nodes[0].topics.create([wanted])
        nodes[1].metadata.feed.is_lagging = True
        await nodes[0].cluster.move(Move("t", 0, [2]))
        await end_move(nodes[0])
        nodes[0].metadata.is_up = False
        nodes[1].metadata.feed.follow_to(len(nodes[0].host.log))
        await settled()
        assert nodes[1].running() == {"t": 1}
        nodes[0].metadata.is_up = True
        while nodes[1].running():
            await settled()

    run(test)


def test_a_node_that_ends_waits_for_no_controller() -> None:
    async def test(nodes: Nodes) -> None:
        wanted = NewTopic(name="t", configs={}, assignments=[(0, [1])])
        await nodes[0].topics.create([wanted])
        nodes[1].metadata.feed.is_lagging = True
        await nodes[0].cluster.move(Move("t", 0, [2]))
        await end_move(nodes[0])
        end = len(nodes[0].host.log)
        nodes[0].host.commit([BrokerStored(broker=broker(2))])
        nodes[1].metadata.feed.follow_to(end)
        await settled()
        closing = asyncio.ensure_future(nodes[1].topics.close())
        await settled()
        assert closing.done()
        assert nodes[1].running() == {"t": 1}

    run(test)


def test_what_a_crash_left_of_a_moved_replica_is_removed() -> None:
    async def test(nodes: Nodes) -> None:
        topic = (await nodes[0].topics.create([new("t", 2)]))["t"]
        assert isinstance(topic, Topic)
        disk = Disk(directories={(topic.topic_id, 0), (topic.topic_id, 7)})
        again = await Node.join(nodes[0].host, 2, disk)
        assert disk.directories == {(topic.topic_id, 0), (topic.topic_id, 1)}
        await again.topics.close()

    run(test)


def test_a_topic_that_is_deleted_while_strays_are_removed_is_no_stray() -> None:
    """Its replicas are in use until the work on it took them out of use."""

    async def test(nodes: Nodes) -> None:
        await nodes[0].topics.create([new("t", 2)])
        await settled()
        nodes[2].partitions.before_removal = asyncio.Event()
        deletion = asyncio.ensure_future(nodes[0].topics.delete([TopicName("t")]))
        await settled()
        removal = asyncio.ensure_future(nodes[2].topics.remove_strays())
        await settled()
        assert nodes[2].running() == {"t": 2}
        nodes[2].partitions.before_removal.set()
        await removal
        await deletion
        await settled()
        assert nodes[2].running() == {}
        assert nodes[2].disk.directories == set()

    run(test)


def test_what_moves_back_while_strays_are_removed_is_made_after_that() -> None:
    """Beside the removal, the new replica would lose its files."""

    async def test(nodes: Nodes) -> None:
        wanted = NewTopic(name="t", configs={}, assignments=[(0, [0])])
        topic = (await nodes[0].topics.create([wanted]))["t"]
        assert isinstance(topic, Topic)
        disk, partitions = nodes[2].disk, nodes[2].partitions
        disk.directories.add((topic.topic_id, 0))
        partitions.before_removal = asyncio.Event()
        removal = asyncio.ensure_future(nodes[2].topics.remove_strays())
        await settled()
        await nodes[1].cluster.move(Move("t", 0, [2]))
        await settled()
        assert nodes[2].running() == {}
        partitions.before_removal.set()
        await removal
        await settled()
        assert nodes[2].running() == {"t": 1}
        assert disk.directories == {(topic.topic_id, 0)}

    run(test)


def test_a_broker_with_another_disk_is_named_to_every_group() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes[0].topics.create([new("t")])
        fresh = broker(2, directory="fresh")
        nodes[0].host.commit([BrokerStored(broker=fresh)])
        wanted = nodes[0].partitions.get("t", 0).wanted
        assert fresh.replica_id in wanted
        assert broker(2).replica_id not in wanted

    run(test)


def test_a_node_that_was_away_makes_and_removes_what_it_missed() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes[0].topics.create([new("gone"), new("kept", 2)])
        await settled()
        disk, group = nodes[2].disk, nodes[2].host
        nodes[2].metadata.is_up = False
        nodes[2].metadata.feed.is_lagging = True
        await nodes[0].topics.delete([TopicName("gone")])
        await nodes[0].topics.create([new("new")])
        again = await Node.join(group, 2, disk)
        assert again.running() == {"kept": 2, "new": 1}
        assert len(disk.directories) == 3
        await again.topics.close()

    run(test)
