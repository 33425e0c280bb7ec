"""A whole node without sockets, alone in its cluster, on a disk that can be told to fail."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from penstock import server
from penstock.broker.groups import Groups
from penstock.broker.partitions import Partitions
from penstock.broker.services import Services
from penstock.broker.topics import NewTopic, Topics
from penstock.cluster.coordinator import Cluster
from penstock.config import Settings
from penstock.model.clock import Clock
from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId
from penstock.model.peers import PeerHello
from tests.unit.replication.rig import Faults, FaultyFileSystem

NODE = BrokerId(1)
ADVERTISED = Endpoint("localhost", 9092)
# How long anything may take on a machine whose disk is busy with other things.
SETTLED_TIMEOUT_S = 60.0
SCENARIO_TIMEOUT_S = 100.0


class NoNetwork:
    """There is nobody else."""

    async def bind(self, endpoint: Endpoint) -> Endpoint:
        raise AssertionError("a lone node opens no door for others")

    async def close(self) -> None: ...

    @property
    def refusal(self) -> str | None:
        return None

    def start(self, hello: PeerHello, listener: Any) -> None: ...

    def set_cluster(self, cluster_id: str) -> None: ...

    def set_peers(self, peers: Mapping[BrokerId, Endpoint]) -> None: ...

    def meet(self, endpoints: Sequence[Endpoint]) -> None: ...

    def send(self, node: BrokerId, pieces: Sequence[Any]) -> bool:
        return False

    def queued_bytes(self, node: BrokerId) -> int:
        return 0

    def drop(self, node: BrokerId, why: str) -> None: ...


class LoneNode:
    """Started, with every partition led by itself; what the doors use is at hand."""

    def __init__(self, path: Path, settings: Mapping[str, str], clock: Clock | None) -> None:
        self.faults = Faults()
        self._executors: list[Executor] = []
        self._others = asyncio.all_tasks()
        self.node = server.Node(
            Settings(data_dir=path, node=NODE, broker=settings),
            server.NodeParts(
                clock=clock or server.SystemClock(),
                file_system=FaultyFileSystem(self.faults),
                make_network=lambda secret, clock: NoNetwork(),
                make_executor=self._make_executor,
            ),
        )

    @classmethod
    async def start(cls, path: Path, *, clock: Clock | None = None, **settings: str) -> Self:
        """`settings` are broker settings, with underscores for dots."""
        named = {name.replace("_", "."): text for name, text in settings.items()}
        node = cls(path, named, clock)
        await node.node.start_services()
        await node.node.register(ADVERTISED)
        node.services = node.node.services
        node.cluster = node.node.cluster
        node.partitions = node.node.partitions
        node.topics = node.services.topics
        node.groups = node.services.groups
        for replica in node.partitions.all():
            if replica.stopped_because is None:
                await replica.settled(SETTLED_TIMEOUT_S)
        return node

    services: Services
    cluster: Cluster
    partitions: Partitions
    topics: Topics
    groups: Groups

    def _make_executor(self, name: str, threads: int) -> Executor:
        executor = ThreadPoolExecutor(threads, thread_name_prefix=f"test-{name}")
        self._executors.append(executor)
        return executor

    async def create(self, *names: str, partitions: int = 2, **configs: str) -> None:
        named = {key.replace("_", "."): text for key, text in configs.items()}
        outcomes = await self.topics.create(
            [NewTopic(name=name, partitions=partitions, configs=named) for name in names]
        )
        for outcome in outcomes.values():
            if isinstance(outcome, Exception):
                raise outcome

    async def stop(self) -> None:
        self.faults.writes_go_on.set()
        await self.node.stop()

    def kill(self) -> None:
        """Lets go of the directory as a killed process would: nothing is written any more."""
        self.node.exchange.stop()
        for task in asyncio.all_tasks() - self._others:
            task.cancel()
        for executor in self._executors:
            executor.shutdown(wait=True)
        self.node._directory.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), SCENARIO_TIMEOUT_S)

    asyncio.run(bounded())
