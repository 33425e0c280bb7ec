"""The cluster's metadata as readers and listeners see it: after the commit, in order."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.cluster.changes import (
    AssignmentsChanged,
    BrokerConfigChanged,
    BrokersChanged,
    Change,
    ConfigChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from penstock.cluster.config_decisions import BrokerResource, Edit, Operation, TopicResource
from penstock.cluster.coordinator import Cluster
from penstock.cluster.reassignment_decisions import Ended, Move
from penstock.cluster.topic import Topic
from penstock.cluster.topic_decisions import Growth, NewTopic
from penstock.model.errors import Reason, Refused, StartRefused
from penstock.model.ids import TopicName
from tests.unit.cluster.fakes import FakeNode, Group, start_node


def run(test: Callable[[Group, Cluster, list[Change]], Awaitable[None]], **settings: str) -> None:
    async def body() -> None:
        group = Group()
        node = await start_node(group, 0, registers=True, **settings)
        changes: list[Change] = []
        node.cluster.on_change(changes.append)
        await test(group, node.cluster, changes)

    asyncio.run(body())


async def reopened(group: Group) -> Cluster:
    """What a node that starts again reads from the same log."""
    return (await start_node(Group(list(group.log)))).cluster


async def make(cluster: Cluster, name: str, **more: object) -> Topic:
    new = NewTopic(name=name, **{"configs": {}, **more})  # type: ignore[arg-type]
    outcomes, _ = await cluster.create_topics([new])
    assert isinstance(outcomes[name], Topic)
    topic = cluster.topic(name)
    assert topic is not None
    return topic


def test_a_topic_is_seen_once_it_is_committed() -> None:
    async def test(group: Group, cluster: Cluster, changes: list[Change]) -> None:
        group.held = asyncio.Event()
        creating = asyncio.ensure_future(cluster.create_topics([NewTopic(name="t", configs={})]))
        await asyncio.sleep(0.001)
        assert cluster.topic("t") is None, "not before the commit"
        group.held.set()
        _, offset = await creating
        assert offset == len(group.log) == cluster.applied
        topic = cluster.topic("t")
        assert topic is not None
        assert cluster.topic_by_id(topic.topic_id) is topic
        assert list(cluster.topics()) == [topic]
        assert changes == [TopicCreated(topic)]

    run(test)


def test_a_caller_that_gives_up_does_not_hide_the_commit() -> None:
    async def test(group: Group, cluster: Cluster, changes: list[Change]) -> None:
        topic = await make(cluster, "t")
        group.held = asyncio.Event()
        deleting = asyncio.ensure_future(cluster.delete_topics([TopicName("t")]))
        await asyncio.sleep(0)
        deleting.cancel()
        await asyncio.gather(deleting, return_exceptions=True)
        group.held.set()
        while cluster.topic("t") is not None:
            await asyncio.sleep(0.001)
        assert changes[-1] == TopicDeleted(topic)

    run(test)


def test_a_refused_commit_changes_nothing() -> None:
    async def test(group: Group, cluster: Cluster, changes: list[Change]) -> None:
        topic = await make(cluster, "t")
        group.is_disk_full = True
        for work in (
            cluster.create_topics([NewTopic(name="u", configs={})]),
            cluster.delete_topics([topic.name]),
            cluster.grow_topics([Growth(name="t", partitions=4)]),
            cluster.replace_configs([(TopicResource("t"), {"flush.ms": "5"})]),
            cluster.allocate_producer_ids(),
        ):
            with pytest.raises(Refused) as caught:
                await work
            assert caught.value.reason == Reason.STORAGE_ERROR
        assert list(cluster.topics()) == [topic]
        assert changes == [TopicCreated(topic)]
        group.is_disk_full = False
        assert await cluster.allocate_producer_ids() == range(1000)

    run(test)


def test_growth_and_settings_are_told() -> None:
    async def test(group: Group, cluster: Cluster, changes: list[Change]) -> None:
        await make(cluster, "t", partitions=2)
        await cluster.grow_topics([Growth(name="t", partitions=3)])
        topic = cluster.topic("t")
        assert topic is not None
        assert topic.partitions == 3
        assert changes[-1] == PartitionsAdded(topic, 2)
        await cluster.edit_configs(
            [(TopicResource("t"), [Edit("retention.ms", Operation.SET, "5")])]
        )
        assert isinstance(changes[-1], ConfigChanged)
        assert changes[-1].config.retention_ms == 5
        assert cluster.topic_config("t").retention_ms == 5
        topic = cluster.topic("t")
        assert topic is not None
        assert (topic.partitions, topic.configs) == (3, {"retention.ms": "5"})

    run(test)


def test_moves_and_brokers_are_told() -> None:
    async def test(group: Group, cluster: Cluster, changes: list[Change]) -> None:
        await make(cluster, "t")
        await start_node(group, 1)
        assert changes[-1:] == [BrokersChanged()]
        assert list(cluster.brokers) == [0, 1]
        await cluster.move(Move("t", 0, [1]))
        topic = cluster.topic("t")
        assert topic is not None
        assert topic.assignments[0].hosts == (1, 0)
        assert changes[-1:] == [AssignmentsChanged(topic)]
        await cluster.end_moves([Ended(topic.partition_id(0), topic.assignments[0])])
        topic = cluster.topic("t")
        assert topic is not None
        assert changes[-1:] == [AssignmentsChanged(topic)]
        assert topic.assignments[0].hosts == (1,)

    run(test)


def test_broker_settings_reach_the_topics_that_do_not_override_them() -> None:
    async def test(group: Group, cluster: Cluster, changes: list[Change]) -> None:
        plain = await make(cluster, "plain")
        await make(cluster, "own", configs={"retention.ms": "7"})
        assert cluster.topic_config("plain").retention_ms == 3_600_000
        changes.clear()
        await cluster.replace_configs([(BrokerResource(""), {"log.retention.ms": "9"})])
        changed, told = changes
        assert isinstance(changed, BrokerConfigChanged)
        assert changed.names == {"log.retention.ms"}
        assert isinstance(told, ConfigChanged)
        assert (told.topic, told.config.retention_ms) == (plain, 9)
        assert cluster.topic_config("own").retention_ms == 7
        await cluster.replace_configs([(BrokerResource("0"), {"log.retention.ms": "8"})])
        assert cluster.topic_config("plain").retention_ms == 8, (
            "one broker's wins over all brokers'"
        )
        assert cluster.int_setting("log.retention.ms") == 8
        await cluster.replace_configs([(BrokerResource("0"), {}), (BrokerResource(""), {})])
        assert cluster.topic_config("plain").retention_ms == 3_600_000

    run(test, log_retention_hours="1")


def test_settings_that_change_nothing_are_not_told() -> None:
    async def test(group: Group, cluster: Cluster, changes: list[Change]) -> None:
        await cluster.replace_configs([(BrokerResource(""), {"log.retention.hours": "168"})])
        assert changes == []

    run(test)


def test_validation_alone_commits_nothing() -> None:
    async def test(group: Group, cluster: Cluster, changes: list[Change]) -> None:
        await make(cluster, "t")
        before = list(group.log)
        await cluster.create_topics([NewTopic(name="u", configs={})], validate_only=True)
        await cluster.grow_topics([Growth(name="t", partitions=3)], validate_only=True)
        await cluster.replace_configs([(TopicResource("t"), {"flush.ms": "3"})], validate_only=True)
        answers = await cluster.edit_configs(
            [(TopicResource("t"), [Edit("flush.ms", Operation.SET, "x")])], validate_only=True
        )
        assert answers[0] is not None
        assert answers[0].reason == Reason.INVALID_CONFIG
        assert group.log == before

    run(test)


def test_producer_ids_are_never_handed_out_twice() -> None:
    async def test(group: Group, cluster: Cluster, changes: list[Change]) -> None:
        blocks = await asyncio.gather(*(cluster.allocate_producer_ids() for _ in range(5)))
        blocks.append(await (await reopened(group)).allocate_producer_ids())
        ids = [producer_id for block in blocks for producer_id in block]
        assert len(set(ids)) == len(ids) == 6000

    run(test)


def test_a_reload_shows_the_same() -> None:
    async def test(group: Group, cluster: Cluster, changes: list[Change]) -> None:
        await make(cluster, "kept", configs={"flush.ms": "5"})
        await make(cluster, "gone")
        await cluster.delete_topics([TopicName("gone")])
        await cluster.replace_configs([(BrokerResource(""), {"log.retention.ms": "9"})])
        again = await reopened(group)
        assert list(again.topics()) == list(cluster.topics())
        assert again.brokers == cluster.brokers
        assert again.topic_config("kept") == cluster.topic_config("kept")
        assert not again.is_new

    run(test)


async def test_damaged_metadata_refuses_the_start() -> None:
    """Going on would show an empty cluster, whose topics everyone would then make again."""
    node = FakeNode(Group())
    node.host.replica.stopped_because = OSError("metadata/0.log is damaged at byte 17")
    with pytest.raises(StartRefused, match="byte 17"):
        await node.cluster.load()


def test_a_thousand_topics_are_one_commit() -> None:
    async def test(group: Group, cluster: Cluster, changes: list[Change]) -> None:
        names = [f"t{number}" for number in range(1000)]
        before = group.commits
        await cluster.create_topics([NewTopic(name=n, configs={}) for n in names])
        assert group.commits == before + 1
        assert len(cluster.topics()) == 1000

    run(test)
