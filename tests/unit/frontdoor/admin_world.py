"""A broker without a disk behind the administrative handlers, asked through the real codec."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.broker.client_metrics import ClientMetrics
from penstock.broker.configs import Configs
from penstock.broker.leaderships import Leaderships
from penstock.broker.log_directories import LogDirectories
from penstock.broker.topics import NewTopic
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.model.errors import Refused
from penstock.protocol.kafka.codec import decode, encode
from penstock.server import SystemClock
from tests.unit.broker.fake_disk import AtOnce, Disk, Node


class World:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.services: Any = SimpleNamespace(
            partitions=node.partitions,
            leaderships=Leaderships(
                cluster=node.cluster,
                partitions=node.partitions,  # type: ignore[arg-type]
                leaders=node.exchange.leaders,
                exchange=node.exchange,
            ),
            topics=node.topics,
            configs=Configs(cluster=node.cluster),
            client_metrics=ClientMetrics(cluster=node.cluster, clock=SystemClock()),
            log_directories=LogDirectories(
                partitions=node.partitions,  # type: ignore[arg-type]
                directory=Path("/data"),
                disk_usage=lambda path: SimpleNamespace(total=1000, free=400),
                executor=AtOnce(),
            ),
        )

    async def ask(self, api: Api, version: int, request: Any) -> Any:
        """What a client of that version reads, after both messages went over the wire."""
        received = decode(api.request, version, encode(request, version))
        call = Call(self.services, api.key, version, "client", None, 0.0)  # type: ignore[arg-type]
        try:
            answer = api.handle(call, received)
            if inspect.isawaitable(answer):
                answer = await answer
        except Refused as refused:
            answer = api.refusal(call, received, error_code(refused))
        return decode(api.response, version, encode(answer, version))

    async def make(self, name: str, partitions: int = 1, **configs: str) -> None:
        named = {key.replace("_", "."): text for key, text in configs.items()}
        new = NewTopic(name=name, partitions=partitions, configs=named)
        outcome = (await self.node.topics.create([new]))[name]
        assert not isinstance(outcome, Refused)

    def damage(self, topic: str, partition: int) -> None:
        """What a replica that finds its log damaged does: it stops, and leads no more."""
        replica = self.node.partitions.get(topic, partition)
        replica.stopped_because = OSError("damaged")
        replica.is_leader = replica.is_settled = False


def versions_of(api: Api) -> range:
    return range(api.versions[0], api.versions[1] + 1)


def in_world(test: Callable[[World], Awaitable[None]], **settings: str) -> None:
    async def body() -> None:
        node = await Node.start(Disk(), **settings)
        await test(World(node))
        await node.topics.close()

    asyncio.run(body())


def each_version(api: Api, test: Callable[[World, int], Awaitable[None]], **settings: str) -> None:
    """Runs the test once per version, each in a world of its own."""
    for version in versions_of(api):

        async def body(world: World, version: int = version) -> None:
            await test(world, version)

        in_world(body, **settings)
