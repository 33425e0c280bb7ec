"""Making, growing and deleting topics: metadata and partitions go together."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.broker.topics import Growth, NewTopic, Outcome, Topic
from penstock.cluster.config_decisions import BrokerResource, TopicResource
from penstock.model.errors import Reason, Refused
from penstock.model.ids import TopicName
from tests.unit.broker.fake_disk import Disk, Node
from tests.waiting import until


def run(test: Callable[[Node], Awaitable[None]], **settings: str) -> None:
    async def body() -> None:
        node = await Node.start(Disk(), **settings)
        await test(node)
        await node.topics.close()

    asyncio.run(body())


def new(name: str, partitions: int = 1, **configs: str) -> NewTopic:
    named = {key.replace("_", "."): text for key, text in configs.items()}
    return NewTopic(name=name, partitions=partitions, configs=named)


def reason_of(outcome: Outcome) -> Reason:
    assert isinstance(outcome, Refused)
    return outcome.reason


def test_a_made_topic_is_seen_and_its_partitions_run() -> None:
    async def test(node: Node) -> None:
        outcomes = await node.topics.create([new("a", 2), new("b", retention_ms="5")])
        assert all(isinstance(outcome, Topic) for outcome in outcomes.values())
        assert node.served() == {"a": 2, "b": 1}
        assert node.running() == {"a": 2, "b": 1}
        assert node.partitions.get("b", 0).config.retention_ms == 5

    run(test)


def test_a_full_disk_leaves_no_half_made_topic() -> None:
    async def test(node: Node) -> None:
        node.disk.room = 2
        outcomes = await node.topics.create([new("small", 1), new("large", 3)])
        assert reason_of(outcomes["large"]) == Reason.STORAGE_ERROR
        assert node.served() == node.running() == {"small": 1}
        await until(lambda: len({topic_id for topic_id, _ in node.disk.directories}) == 1)
        node.disk.room = 10
        outcomes = await node.topics.create([new("large", 3)])
        assert isinstance(outcomes["large"], Topic)

    run(test)


def test_a_disk_too_full_to_take_the_topic_back_does_not_block_its_name() -> None:
    async def test(node: Node) -> None:
        def fill(name: str) -> None:
            node.host.is_disk_full = True
            node.disk.room = 0

        node.partitions.before_create = fill
        outcomes = await node.topics.create([new("t")])
        assert reason_of(outcomes["t"]) == Reason.STORAGE_ERROR
        assert node.running() == {}
        node.partitions.before_create = lambda name: None
        node.host.is_disk_full = False
        node.disk.room = 10
        assert isinstance((await node.topics.create([new("t", 2)]))["t"], Topic)
        await node.topics.close()
        assert node.served() == node.running() == {"t": 2}
        assert len(node.disk.directories) == 2

    run(test)


def test_a_topic_that_found_room_at_last_is_not_replaced() -> None:
    """By then clients may have written to it."""

    async def test(node: Node) -> None:
        def fill(name: str) -> None:
            node.host.is_disk_full = True
            node.disk.room = 0

        node.partitions.before_create = fill
        assert reason_of((await node.topics.create([new("t")]))["t"]) == Reason.STORAGE_ERROR
        node.partitions.before_create = lambda name: None
        node.host.is_disk_full = False
        node.disk.room = 10
        await until(node.running)
        outcome = (await node.topics.create([new("t")]))["t"]
        assert reason_of(outcome) == Reason.TOPIC_ALREADY_EXISTS
        assert node.running() == {"t": 1}

    run(test)


def test_a_caller_that_hangs_up_does_not_leave_a_topic_half_made() -> None:
    async def test(node: Node) -> None:
        node.host.held = asyncio.Event()
        creating = asyncio.ensure_future(node.topics.create([new("t")]))
        await asyncio.sleep(0.001)
        creating.cancel()
        node.host.held.set()
        await asyncio.gather(creating, return_exceptions=True)
        await node.topics.close()
        assert node.served() == node.running() == {"t": 1}

    run(test)


def test_settings_act_at_once() -> None:
    async def test(node: Node) -> None:
        await node.topics.create([new("t", 2)])
        await node.cluster.replace_configs([(TopicResource("t"), {"flush.ms": "5"})])
        assert [replica.config.flush_ms for replica in node.partitions.all()] == [5, 5]
        await node.cluster.replace_configs([(BrokerResource(""), {"log.segment.bytes": "99"})])
        assert [replica.config.segment_bytes for replica in node.partitions.all()] == [99, 99]

    run(test)


def test_settings_that_change_while_partitions_are_made_are_not_missed() -> None:
    async def test(node: Node) -> None:
        await node.topics.create([new("t")])
        changing: list[asyncio.Future[object]] = []

        def change(name: str) -> None:
            work = node.cluster.replace_configs([(TopicResource("t"), {"flush.ms": "5"})])
            changing.append(asyncio.ensure_future(work))

        node.partitions.before_create = change
        await node.topics.grow([Growth(name="t", partitions=3)])
        await asyncio.gather(*changing)
        assert [replica.config.flush_ms for replica in node.partitions.all()] == [5, 5, 5]

    run(test)


def test_growth_adds_partitions() -> None:
    async def test(node: Node) -> None:
        await node.topics.create([new("t", 2)])
        await node.topics.grow([Growth(name="t", partitions=3)], validate_only=True)
        assert node.served() == {"t": 2}
        outcomes = await node.topics.grow(
            [Growth(name="t", partitions=4), Growth(name="u", partitions=4)]
        )
        assert isinstance(outcomes["t"], Topic)
        assert reason_of(outcomes["u"]) == Reason.UNKNOWN_TOPIC_OR_PARTITION
        assert node.served() == {"t": 4}

    run(test)


def test_growths_at_the_same_time_leave_no_gap() -> None:
    async def test(node: Node) -> None:
        await node.topics.create([new("t", 1)])
        growing = asyncio.gather(
            *(node.topics.grow([Growth(name="t", partitions=count)]) for count in (5, 6, 3, 8))
        )
        outcomes = await growing
        assert all(node.running()["t"] >= 5 for _ in outcomes)
        assert node.served() == node.running() == {"t": 8}

    run(test)


def test_a_growth_that_finds_no_room_leaves_the_topic_as_it_was() -> None:
    async def test(node: Node) -> None:
        await node.topics.create([new("t", 2)])
        node.disk.room = 1
        outcomes = await node.topics.grow([Growth(name="t", partitions=6)])
        assert reason_of(outcomes["t"]) == Reason.STORAGE_ERROR
        assert node.served() == node.running() == {"t": 2}
        node.disk.room = 10
        outcomes = await node.topics.grow([Growth(name="t", partitions=4)])
        assert isinstance(outcomes["t"], Topic)
        assert node.served() == {"t": 4}

    run(test)


def test_a_deleted_topic_is_gone_and_its_files_follow() -> None:
    async def test(node: Node) -> None:
        await node.topics.create([new("t", 2), new("kept")])
        outcomes = await node.topics.delete([TopicName("t"), TopicName("u")])
        assert isinstance(outcomes[0], Topic)
        assert reason_of(outcomes[1]) == Reason.UNKNOWN_TOPIC_OR_PARTITION
        await node.topics.close()
        assert node.served() == {"kept": 1}
        assert len(node.disk.directories) == 1

    run(test)


def test_a_name_can_be_used_again_at_once() -> None:
    async def test(node: Node) -> None:
        for _ in range(3):
            await node.topics.create([new("t")])
            await node.topics.delete([TopicName("t")])
        await node.topics.create([new("t", 2)])
        await node.topics.close()
        assert node.served() == {"t": 2}
        assert len(node.disk.directories) == 2

    run(test)


def test_no_partition_outlives_a_topic_that_is_deleted_while_it_grows() -> None:
    async def test(node: Node) -> None:
        await node.topics.create([new("t")])
        under_way = asyncio.Event()
        node.partitions.before_create = lambda name: under_way.set()
        growing = asyncio.ensure_future(node.topics.grow([Growth(name="t", partitions=5)]))
        await under_way.wait()
        await node.topics.delete([TopicName("t")])
        await growing
        await node.topics.close()
        assert node.served() == node.running() == {}
        assert node.disk.directories == set()

    run(test)


def test_deletion_can_be_switched_off() -> None:
    async def test(node: Node) -> None:
        await node.topics.create([new("t")])
        with pytest.raises(Refused) as caught:
            await node.topics.delete([TopicName("t")])
        assert caught.value.reason == Reason.TOPIC_DELETION_DISABLED
        assert node.served() == {"t": 1}

    run(test, delete_topic_enable="false")


def test_ensure_makes_what_is_missing_once_however_many_ask() -> None:
    async def test(node: Node) -> None:
        await node.topics.create([new("old", 2)])
        answers = await asyncio.gather(
            *(node.topics.ensure([new("old"), new("t", 3)]) for _ in range(10))
        )
        for outcomes in answers:
            assert outcomes["t"] == node.cluster.topic("t")
            assert outcomes["old"] == node.cluster.topic("old")
        assert node.served() == {"old": 2, "t": 3}

    run(test)


def test_ensure_tells_why_a_topic_can_not_be_made() -> None:
    async def test(node: Node) -> None:
        outcomes = await node.topics.ensure([new("bad name"), new("t", 0)])
        assert reason_of(outcomes["bad name"]) == Reason.INVALID_TOPIC
        assert reason_of(outcomes["t"]) == Reason.INVALID_PARTITIONS

    run(test)


def test_an_internal_topic_is_made_on_first_use() -> None:
    async def test(node: Node) -> None:
        configs = {"cleanup.policy": "compact"}
        topics = await asyncio.gather(
            *(
                node.topics.ensure_internal("__consumer_offsets", partitions=8, configs=configs)
                for _ in range(3)
            )
        )
        assert {topic.topic_id for topic in topics} == {topics[0].topic_id}
        assert topics[0].internal
        assert node.served() == {"__consumer_offsets": 8}
        assert node.partitions.get("__consumer_offsets", 7).config.cleanup_compact
        refused = (await node.topics.delete([topics[0].name]))[0]
        assert reason_of(refused) == Reason.INVALID_REQUEST

    run(test)


def test_an_internal_topic_that_can_not_be_made_is_a_refusal() -> None:
    async def test(node: Node) -> None:
        node.host.is_disk_full = True
        with pytest.raises(Refused) as caught:
            await node.topics.ensure_internal("__consumer_offsets", partitions=1, configs={})
        assert caught.value.reason == Reason.STORAGE_ERROR

    run(test)


def test_validation_alone_makes_nothing() -> None:
    async def test(node: Node) -> None:
        outcomes = await node.topics.create([new("t"), new("bad name")], validate_only=True)
        assert isinstance(outcomes["t"], Topic)
        assert isinstance(outcomes["bad name"], Refused)
        assert node.served() == {}
        assert node.disk.directories == set()

    run(test)
