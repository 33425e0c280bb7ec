"""Topics on a real disk: restarts, crashes, a lost directory, a full disk."""

import asyncio
import errno
import shutil
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from penstock.broker.partitions import Partitions
from penstock.broker.topics import Growth, NewTopic, Outcome, Topic, Topics
from penstock.cluster.brokers import Broker
from penstock.cluster.coordinator import Cluster
from penstock.cluster.records import ClusterRecord, ClusterRecordCodec
from penstock.cluster.state import ClusterState
from penstock.model.endpoint import Endpoint
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, ReplicaId, TopicName
from penstock.model.limits import Limits
from penstock.net.occasional_log import OccasionalLog
from penstock.raft.settings import RaftSettings
from penstock.replication.exchange import Exchange
from penstock.replication.feed import Feed
from penstock.replication.hosting import Host
from penstock.replication.store import ReplicaStore
from penstock.replication.write_side import WriteSide
from penstock.storage.data_directory import DataDirectory
from penstock.storage.file_system import Bytes, RealFile, RealFileSystem
from penstock.storage.hard_states import HardStates
from penstock.storage.open_files import OpenFiles

CLOCK = SimpleNamespace(now_ms=lambda: 1_700_000_000_000, monotonic=monotonic)


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


class NoPeers:
    """The network of a node that stands alone."""

    def send(self, node: BrokerId, pieces: object) -> bool:
        return False


@dataclass
class Running:
    disk: FullableDisk
    cluster: Cluster
    partitions: Partitions
    topics: Topics
    exchange: Exchange

    def served(self) -> dict[str, list[int]]:
        """The leader of each partition of each topic; -1 for none."""
        return {
            topic.name: [self._leader(topic, index) for index in range(topic.partitions)]
            for topic in self.cluster.topics()
        }

    def _leader(self, topic: Topic, index: int) -> int:
        info = self.exchange.leaders.get(topic.partition_id(index))
        return -1 if info is None else info.leader


@asynccontextmanager
async def node(path: Path) -> AsyncIterator[Running]:
    async with AsyncExitStack() as built:
        disk = FullableDisk()
        directory = DataDirectory.open(path, node=BrokerId(0), file_system=disk)
        built.callback(directory.close)
        own = ReplicaId(BrokerId(0), directory.directory_id)
        if directory.cluster_id is None:
            directory.set_cluster("cluster", [own])
        workers = ThreadPoolExecutor(2)
        built.callback(workers.shutdown)
        network: Any = NoPeers()
        exchange = Exchange(own=own, network=network, log=OccasionalLog(CLOCK))
        exchange.start()
        built.callback(exchange.stop)
        store = ReplicaStore(
            directory=directory,
            file_system=disk,
            open_files=OpenFiles(disk, 100),
            clock=CLOCK,
            executor=workers,
            background=workers,
            write_side=WriteSide(workers),
            limits=Limits(),
            own=own,
            outbound=exchange,
            hard_states=HardStates.open(directory.hard_states_path, file_system=disk),
            random_below=Random(1).randrange,
            raft_settings=RaftSettings(heartbeats_by_host=True),
        )
        built.push_async_callback(store.close)
        partitions = Partitions(store=store, exchange=exchange)
        built.push_async_callback(partitions.close)
        cluster = await _cluster(built, directory, disk, workers, partitions, exchange)
        topics = Topics(
            cluster=cluster,
            partitions=partitions,
            exchange=exchange,
            directory=directory,
            executor=workers,
            clock=CLOCK,
            retry_s=0.01,
        )
        await topics.open_all()
        built.push_async_callback(topics.close)
        await cluster.register(
            Broker(
                id=own.node,
                directory=own.directory,
                kafka=Endpoint("localhost", 9092),
                peer=Endpoint("localhost", 9095),
            )
        )
        await topics.take_part()
        yield Running(disk, cluster, partitions, topics, exchange)


async def _cluster(
    built: AsyncExitStack,
    directory: DataDirectory,
    disk: FullableDisk,
    workers: ThreadPoolExecutor,
    partitions: Partitions,
    exchange: Exchange,
) -> Cluster:
    replica = await partitions.open_metadata(directory.founders)
    shared: dict[str, Any] = {
        "replica": replica,
        "make_state": ClusterState,
        "codec": ClusterRecordCodec(),
        "snapshot_path": directory.metadata_directory / "state.snapshot",
        "file_system": disk,
        "executor": workers,
    }
    feed: Feed[ClusterState, ClusterRecord] = Feed(**shared)
    host: Host[ClusterState, ClusterRecord] = Host(**shared, clock=CLOCK, feed=feed)
    cluster = Cluster(
        host=host,
        feed=feed,
        exchange=exchange,
        broker_id=BrokerId(0),
        directory_id=directory.directory_id,
        cluster_id="cluster",
        founders=directory.founders,
        static_broker_config={},
        clock=CLOCK,
        new_uuid=uuid4,
        random_below=Random(1).randrange,
    )
    await cluster.load()
    built.push_async_callback(feed.close)
    built.push_async_callback(host.close)
    partitions.follow(cluster)
    return cluster


def new(name: str, partitions: int = 1, **configs: str) -> NewTopic:
    named = {key.replace("_", "."): text for key, text in configs.items()}
    return NewTopic(name=name, partitions=partitions, configs=named)


async def made(running: Running, name: str) -> Outcome:
    try:
        return (await running.topics.create([new(name, 2)]))[name]
    except Refused as refused:
        return refused


def crash(path: Path) -> Path:
    """The directory as a crash at this moment leaves it, for the next start."""
    after = path.with_name(path.name + "-after")
    shutil.copytree(path, after)
    return after


async def test_topics_survive_restarts(tmp_path: Path) -> None:
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


async def test_a_crash_leaves_the_same_topics(tmp_path: Path) -> None:
    async with node(tmp_path / "data") as running:
        await running.topics.create([new("made", 2)])
        await running.topics.create([new("deleted", 2)])
        doomed = running.cluster.topic("deleted")
        assert doomed is not None
        # All is committed, and the crash comes before anything is done about it.
        running.cluster._listeners.clear()
        await running.cluster.create_topics([new("announced", 3)])
        await running.cluster.grow_topics([Growth(name="made", partitions=4)])
        await running.cluster.delete_topics([doomed.name])
        after = crash(tmp_path / "data")
    assert (after / "topics" / doomed.topic_id.hex).exists()
    async with node(after) as restarted:
        assert restarted.served() == {"made": [0] * 4, "announced": [0] * 3}
        await restarted.topics.close()
        assert not (after / "topics" / doomed.topic_id.hex).exists()


async def test_a_lost_partition_of_a_made_topic_is_stopped(tmp_path: Path) -> None:
    async with node(tmp_path / "data") as running:
        await running.topics.create([new("a", 2)])
        topic = running.cluster.topic("a")
        assert topic is not None
    shutil.rmtree(tmp_path / "data" / "topics" / topic.topic_id.hex / "1")
    async with node(tmp_path / "data") as restarted:
        assert restarted.served() == {"a": [0, -1]}


async def test_a_full_disk_refuses_topics_and_heals(tmp_path: Path) -> None:
    async with node(tmp_path / "data") as running:
        await running.topics.create([new("before")])
        running.disk.is_full = True
        for name in ("t", "u"):
            outcome = await made(running, name)
            assert isinstance(outcome, Refused)
            assert outcome.reason == Reason.STORAGE_ERROR
        assert running.cluster.topic("u") is None
        running.disk.is_full = False
        while isinstance(await made(running, "u"), Refused):
            await asyncio.sleep(0.05)
        # The first one was refused after it was appended, so it may have come about since.
        await running.topics.ensure([new("t", 2)])
        assert running.served() == {"before": [0], "t": [0, 0], "u": [0, 0]}
    async with node(tmp_path / "data") as restarted:
        assert restarted.served() == {"before": [0], "t": [0, 0], "u": [0, 0]}
