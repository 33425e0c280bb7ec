"""A node's groups on a real disk, with everything they stand on, as the server builds it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self
from uuid import uuid4

from penstock.broker.groups import GroupHost, Groups
from penstock.broker.partitions import Partitions
from penstock.broker.topics import NewTopic, Topics
from penstock.cluster.coordinator import Cluster
from penstock.cluster.records import ClusterRecordCodec
from penstock.cluster.state import ClusterState
from penstock.groups.records import GroupRecordCodec
from penstock.groups.state import GroupsState
from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId, Term
from penstock.model.limits import Limits
from penstock.replication.hosting import Host
from penstock.replication.replica import Replica
from penstock.replication.store import ReplicaStore
from penstock.storage.data_directory import DataDirectory
from penstock.storage.open_files import OpenFiles
from tests.unit.replication.rig import Faults, FaultyFileSystem


class RealClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class Node:
    def __init__(self, path: Path, settings: dict[str, str]) -> None:
        self.faults = Faults()
        self.clock = RealClock()
        self.limits = Limits()
        self._file_system = FaultyFileSystem(self.faults)
        self._disk = ThreadPoolExecutor(4)
        self._background = ThreadPoolExecutor(1)
        self._settings = settings
        self.directory = DataDirectory.open(path, node=BrokerId(0), file_system=self._file_system)
        store = ReplicaStore(
            directory=self.directory,
            file_system=self._file_system,
            open_files=OpenFiles(self._file_system, 100),
            clock=self.clock,
            executor=self._disk,
            background=self._background,
            limits=self.limits,
            term=Term(self.directory.incarnation),
        )
        self.partitions = Partitions(store=store)

    @classmethod
    async def start(cls, path: Path, **settings: str) -> Self:
        """`settings` are broker settings, with underscores for dots."""
        node = cls(path, {name.replace("_", "."): text for name, text in settings.items()})
        await node._start()
        return node

    async def _start(self) -> None:
        self._metadata = Host(
            replica=await self.partitions.open_metadata(),
            make_state=ClusterState,
            codec=ClusterRecordCodec(),
            snapshot_path=self.directory.metadata_directory / "state.snapshot",
            file_system=self._file_system,
            clock=self.clock,
            executor=self._disk,
        )
        self.cluster = Cluster(
            host=self._metadata,
            broker_id=BrokerId(0),
            cluster_id=self.directory.cluster_id,
            static_broker_config=self._settings,
            clock=self.clock,
            new_uuid=uuid4,
            advertised=Endpoint("localhost", 9092),
        )
        await self.cluster.load()
        self.topics = Topics(
            cluster=self.cluster,
            partitions=self.partitions,
            directory=self.directory,
            executor=self._background,
        )
        await self.topics.open_all()
        self.groups = Groups(
            cluster=self.cluster,
            partitions=self.partitions,
            topics=self.topics,
            clock=self.clock,
            limits=self.limits,
            make_host=self._make_host,
        )
        await self.groups.load()

    def _make_host(self, replica: Replica) -> GroupHost:
        place = self.directory.partition_directory(replica.topic_id, replica.partition.partition)
        return Host(
            replica=replica,
            make_state=GroupsState,
            codec=GroupRecordCodec(),
            snapshot_path=place / "state.snapshot",
            file_system=self._file_system,
            clock=self.clock,
            executor=self._disk,
        )

    async def create(self, *names: str, partitions: int = 2) -> None:
        outcomes = await self.topics.create(
            [NewTopic(name=name, partitions=partitions, configs={}) for name in names]
        )
        for outcome in outcomes.values():
            if isinstance(outcome, Exception):
                raise outcome

    async def stop(self) -> None:
        await self.groups.close()
        await self.topics.close()
        await self._metadata.close()
        await self.partitions.close()
        self._let_go()

    def kill(self) -> None:
        """Lets go of the directory as a killed process would: nothing is written any more."""
        self._let_go()

    def _let_go(self) -> None:
        self._disk.shutdown(wait=True)
        self._background.shutdown(wait=True)
        self.directory.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 20)

    asyncio.run(bounded())
