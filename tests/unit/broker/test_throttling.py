"""Rates of throttles: whose settings they come from, when they act, and who shares them."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.broker.throttling import REVIEW_TICKS, Throttling
from penstock.cluster.config_decisions import BrokerResource
from penstock.cluster.coordinator import Cluster
from penstock.cluster.settings import LONG_MAX
from penstock.cluster.topic import Topic
from penstock.cluster.topic_decisions import NewTopic
from penstock.model.ids import BrokerId, Term
from penstock.replication.leaders import LeaderInfo, LeaderTable
from penstock.replication.throttle import NodeThrottle
from tests.unit.cluster.fakes import Group, start_node

LEADER, FOLLOWER = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
ALL = ""


class Rates(NodeThrottle):
    """Notes what is set."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[float | None, dict[int, float]]] = []

    def set_rates(self, sending, receiving) -> None:  # type: ignore[no-untyped-def]
        super().set_rates(sending, receiving)
        self.noted.append((sending, dict(receiving)))


class Rig:
    """Node 0 of three."""

    def __init__(self, cluster: Cluster, leaders: LeaderTable) -> None:
        self.cluster = cluster
        self.leaders = leaders
        self.rates = Rates()
        self.throttling = Throttling(cluster=cluster, leaders=leaders, throttle=self.rates)

    async def set(self, broker: str, **settings: int) -> None:
        configs = {name: str(rate) for name, rate in settings.items()}
        assert await self.cluster.replace_configs([(BrokerResource(broker), configs)]) == [None]

    def lead(self, topic: Topic, partition: int, leader: int, *in_sync: int) -> None:
        info = LeaderInfo(Term(1), BrokerId(leader), in_sync)
        assert self.leaders.learn(topic.partition_id(partition), info)

    def pass_time(self) -> None:
        for _ in range(REVIEW_TICKS):
            self.throttling.tick()


def play(test: Callable[[Rig], Awaitable[None]]) -> None:
    async def body() -> None:
        group = Group()
        nodes = [await start_node(group, number) for number in range(3)]
        await test(Rig(nodes[0].cluster, nodes[0].exchange.leaders))

    asyncio.run(body())


def test_a_rate_is_the_broker_s_own_or_that_of_all() -> None:
    async def test(rig: Rig) -> None:
        assert rig.rates.noted == [], "nobody set one"
        await rig.set("0", **{LEADER: 5, FOLLOWER: 6})
        assert rig.rates.noted[-1] == (5, {}), "what it receives itself, others see to"
        await rig.set("1", **{LEADER: 7, FOLLOWER: 8})
        assert rig.rates.noted[-1] == (5, {1: 8})
        await rig.set(ALL, **{LEADER: 9, FOLLOWER: 10})
        assert rig.rates.noted[-1] == (5, {1: 8, 2: 10})
        await rig.set("0", **{LEADER: LONG_MAX})
        assert rig.rates.noted[-1] == (None, {1: 8, 2: 10})
        await rig.set("0")
        assert rig.rates.noted[-1] == (9, {1: 8, 2: 10})
        await rig.set("1")
        await rig.set(ALL)
        assert rig.rates.noted[-1] == (None, {})
        count = len(rig.rates.noted)
        await rig.set(ALL, **{"log.retention.ms": 5})
        assert len(rig.rates.noted) == count, "that is about something else"

    play(test)


def test_leaders_that_fill_the_same_broker_share_its_rate() -> None:
    async def test(rig: Rig) -> None:
        new = NewTopic(
            name="t",
            partitions=3,
            replication_factor=3,
            configs={"follower.replication.throttled.replicas": "0:2,1:2"},
        )
        topic = (await rig.cluster.create_topics([new]))[0]["t"]
        assert isinstance(topic, Topic)
        await rig.set(ALL, **{FOLLOWER: 100})
        for partition in range(3):
            rig.lead(topic, partition, partition % 2, 0, 1)
        rig.pass_time()
        assert rig.rates.noted[-1] == (None, {1: 100, 2: 50}), "nodes 0 and 1 fill node 2"
        rig.lead(topic, 1, 1, 0, 1, 2)
        rig.pass_time()
        assert rig.rates.noted[-1] == (None, {1: 100, 2: 100}), "node 1 has done with it"
        count = len(rig.rates.noted)
        rig.pass_time()
        assert len(rig.rates.noted) == count

    play(test)
