"""Topics on a real disk: restarts, crashes, a lost directory, a full disk."""

import asyncio
import errno
import shutil
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

from penstock.broker.partitions import Partitions
from penstock.broker.topics import Growth, NewTopic, Topic, Topics
from penstock.cluster.coordinator import Cluster
from penstock.cluster.records import ClusterRecord, ClusterRecordCodec
from penstock.cluster.state import ClusterState
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, Term, TopicName
from penstock.model.limits import Limits
from penstock.replication.hosting import Host
from penstock.replication.store import ReplicaStore
from penstock.storage.data_directory import DataDirectory
from penstock.storage.file_system import Bytes, RealFile, RealFileSystem
from penstock.storage.open_files import OpenFiles

CLOCK = SimpleNamespace(now_ms=lambda: 1_700_000_000_000, monotonic=lambda: 0.0)


class FullableFile(RealFile):
    disk: "FullableDisk"

    def pwrite(self, data: Bytes, position: int) -> None:
        self.disk.check()
        super().pwrite(data, position)

    def pwritev(self, parts: Sequence[Bytes], position: int) -> None:
        self.disk.check()
        super().pwritev(parts, position)


class FullableDisk(RealFileSystem):
    """A real file system that can run out of room."""

    is_full = False

    def check(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def open(self, path: Path) -> RealFile:
        return self._watched(super().open(path))

    def create(self, path: Path) -> RealFile:
        self.check()
        return self._watched(super().create(path))

    def _watched(self, file: RealFile) -> RealFile:
        watched = FullableFile(file.fileno())
        watched.disk = self
        return watched


@dataclass
class Running:
    disk: FullableDisk
    cluster: Cluster
    partitions: Partitions
    topics: Topics

    def served(self) -> dict[str, list[int]]:
        """The leader of each partition of each topic; -1 for none."""
        return {
            topic.name: [view.leader for view in self.topics.describe(topic)]
            for topic in self.cluster.topics()
        }


@asynccontextmanager
async def node(path: Path) -> AsyncIterator[Running]:
    async with AsyncExitStack() as built:
        disk = FullableDisk()
        directory = DataDirectory.open(path, node=BrokerId(0), file_system=disk)
        built.callback(directory.close)
        workers = ThreadPoolExecutor(2)
        built.callback(workers.shutdown)
        store = ReplicaStore(
            directory=directory,
            file_system=disk,
            open_files=OpenFiles(disk, 100),
            clock=CLOCK,
            executor=workers,
            background=workers,
            limits=Limits(),
            term=Term(directory.incarnation),
        )
        partitions = Partitions(store=store)
        built.push_async_callback(partitions.close)
        host: Host[ClusterState, ClusterRecord] = Host(
            replica=await partitions.open_metadata(),
            make_state=ClusterState,
            codec=ClusterRecordCodec(),
            snapshot_path=directory.metadata_directory / "state.snapshot",
            file_system=disk,
            clock=CLOCK,
            executor=workers,
        )
        cluster = Cluster(
            host=host,
            broker_id=BrokerId(0),
            cluster_id=directory.cluster_id,
            static_broker_config={},
            clock=CLOCK,
            new_uuid=uuid4,
        )
        await cluster.load()
        built.push_async_callback(host.close)
        topics = Topics(
            cluster=cluster, partitions=partitions, directory=directory, executor=workers
        )
        await topics.open_all()
        built.push_async_callback(topics.close)
        yield Running(disk, cluster, partitions, topics)


def new(name: str, partitions: int = 1, **configs: str) -> NewTopic:
    named = {key.replace("_", "."): text for key, text in configs.items()}
    return NewTopic(name=name, partitions=partitions, configs=named)


def crash(path: Path) -> Path:
    """The directory as a crash at this moment leaves it, for the next start."""
    after = path.with_name(path.name + "-after")
    shutil.copytree(path, after)
    return after


def test_topics_survive_restarts(tmp_path: Path) -> None:
    async def body() -> None:
        async with node(tmp_path / "data") as first:
            await first.topics.create([new("a", 2, retention_ms="5"), new("b"), new("c")])
            await first.topics.grow([Growth(name="b", partitions=3)])
            await first.topics.delete([TopicName("c")])
            ids = {topic.name: topic.topic_id for topic in first.cluster.topics()}
        async with node(tmp_path / "data") as second:
            assert second.served() == {"a": [0, 0], "b": [0, 0, 0]}
            assert {topic.name: topic.topic_id for topic in second.cluster.topics()} == ids
            assert second.partitions.get(TopicName("a"), 1).config.retention_ms == 5
            kept = {path.name for path in (tmp_path / "data" / "topics").iterdir()}
            assert kept == {topic_id.hex for topic_id in ids.values()}

    asyncio.run(body())


def test_a_crash_leaves_the_same_topics(tmp_path: Path) -> None:
    async def body() -> None:
        async with node(tmp_path / "data") as running:
            await running.topics.create([new("made", 2)])
            await running.topics.create([new("deleted", 2)])
            await running.cluster.create_topics([new("announced", 3)])
            await running.cluster.grow_topics([Growth(name="made", partitions=4)])
            doomed = running.cluster.topic("deleted")
            assert doomed is not None
            # The deletion is committed, and the crash comes before any of its files is gone.
            running.cluster._listeners.clear()
            await running.cluster.delete_topics([doomed.name])
            after = crash(tmp_path / "data")
        assert (after / "topics" / doomed.topic_id.hex).exists()
        async with node(after) as restarted:
            assert restarted.served() == {"made": [0] * 4, "announced": [0] * 3}
            await restarted.topics.close()
            assert not (after / "topics" / doomed.topic_id.hex).exists()
            assert restarted.cluster.doomed() == []

    asyncio.run(body())


def test_a_lost_partition_of_a_made_topic_is_stopped(tmp_path: Path) -> None:
    async def body() -> None:
        async with node(tmp_path / "data") as running:
            await running.topics.create([new("a", 2)])
            topic = running.cluster.topic("a")
            assert topic is not None
        shutil.rmtree(tmp_path / "data" / "topics" / topic.topic_id.hex / "1")
        async with node(tmp_path / "data") as restarted:
            assert restarted.served() == {"a": [0, -1]}

    asyncio.run(body())


def test_a_full_disk_refuses_topics_and_heals(tmp_path: Path) -> None:
    async def body() -> None:
        async with node(tmp_path / "data") as running:
            await running.topics.create([new("before")])
            running.disk.is_full = True
            for name in ("t", "u"):
                try:
                    outcome = (await running.topics.create([new(name, 2)]))[name]
                except Refused as refused:
                    outcome = refused
                assert isinstance(outcome, Refused)
                assert outcome.reason == Reason.STORAGE_ERROR
            assert running.served() == {"before": [0]}
            running.disk.is_full = False
            outcomes = await running.topics.create([new("t", 2)])
            assert isinstance(outcomes["t"], Topic)
            assert running.served() == {"before": [0], "t": [0, 0]}
        async with node(tmp_path / "data") as restarted:
            assert restarted.served() == {"before": [0], "t": [0, 0]}

    asyncio.run(body())
