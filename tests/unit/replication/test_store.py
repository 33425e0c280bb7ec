"""Making replicas on a disk that fails: a group is known only together with its log."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from penstock.model.ids import BrokerId, PartitionId, PartitionIndex, ReplicaId, TopicPartition
from penstock.model.limits import Limits
from penstock.model.topic_config import TopicConfig
from penstock.replication.replica import Replica
from penstock.replication.store import PARTITIONS_PER_JOB, ReplicaStore
from penstock.replication.write_side import WriteSide
from penstock.storage.data_directory import DataDirectory
from penstock.storage.hard_states import HardStates
from penstock.storage.open_files import OpenFiles
from tests.unit.clocks import ManualClock
from tests.unit.replication.rig import SETTINGS, TOPIC, TOPIC_ID, Alone
from tests.unit.storage.fault_file_system import FaultFileSystem, FaultWholeDisk

PARTITION = TopicPartition(TOPIC, PartitionIndex(0))
CONFIG = TopicConfig()


class Node:
    """As much of a node as makes replicas."""

    def __init__(self, disk: FaultFileSystem, executor: ThreadPoolExecutor) -> None:
        disk.locks.clear()
        directory = DataDirectory.open(Path("/data"), node=BrokerId(1), file_system=disk)
        self.directory = directory
        self.own = ReplicaId(BrokerId(1), directory.directory_id)
        self.store = ReplicaStore(
            directory=directory,
            file_system=disk,
            open_files=OpenFiles(disk, 100),
            clock=ManualClock(),
            executor=executor,
            background=executor,
            write_side=WriteSide(executor),
            limits=Limits(),
            own=self.own,
            outbound=Alone(),
            hard_states=HardStates.open(directory.hard_states_path, file_system=disk),
            random_below=Random(1).randrange,
            raft_settings=SETTINGS,
        )

    async def create(self) -> Replica:
        founders = {0: [self.own]}
        return (await self.store.create([PARTITION], TOPIC_ID, CONFIG, founders))[0]

    async def open(self) -> Replica:
        founders = {0: [self.own]}
        return (await self.store.open([PARTITION], TOPIC_ID, CONFIG, founders))[0]


@pytest.mark.parametrize("is_returning", [False, True])
async def test_a_log_that_an_earlier_attempt_left_is_durable_before_its_group_is_known(
    is_returning: bool,
) -> None:
    with ThreadPoolExecutor(1) as executor:
        disk = FaultFileSystem()
        node = Node(disk, executor)
        if is_returning:
            await (await node.create()).close()
            await node.store.remove_partition(PartitionId(TOPIC_ID, PARTITION.partition))
        disk.failing.add("sync directory")
        with pytest.raises(OSError, match="Input/output"):
            await node.create()
        disk.failing.clear()
        made = await node.create()
        assert made.is_returning == is_returning
        made._end_refill()
        await node.store.close()
        for seed in range(20):
            found = Node(disk.after_power_loss(seed), executor)
            known = found.store._hard_states.get(made.key)
            assert known is not None
            assert not known.is_gone
            again = await found.open()
            assert again.stopped_because is None
            await again.close()
        await made.close()


async def test_a_log_in_a_directory_that_a_killed_process_made_is_there_after_a_power_loss() -> (
    None
):
    with ThreadPoolExecutor(1) as executor:
        disk = FaultFileSystem()
        Node(disk, executor)
        disk.make_directory(Path("/data/topics") / TOPIC_ID.hex)
        made = await Node(disk, executor).create()
        for seed in range(20):
            again = await Node(disk.after_power_loss(seed), executor).open()
            assert again.stopped_because is None
            await again.close()
        await made.close()


async def test_many_partitions_share_the_sync_of_their_topic_and_are_there_after_a_power_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    synced: list[Path] = []
    sync_directory = FaultFileSystem.sync_directory

    def note(disk: FaultFileSystem, path: Path) -> None:
        synced.append(path)
        sync_directory(disk, path)

    monkeypatch.setattr(FaultFileSystem, "sync_directory", note)
    with ThreadPoolExecutor(1) as executor:
        disk = FaultFileSystem()
        node = Node(disk, executor)
        count = PARTITIONS_PER_JOB
        places = [TopicPartition(TOPIC, PartitionIndex(index)) for index in range(count)]
        founders = {index: [node.own] for index in range(count)}
        made = await node.store.create(places, TOPIC_ID, CONFIG, founders)
        assert synced.count(Path("/data/topics") / TOPIC_ID.hex) == 1
        for seed in range(5):
            found = Node(disk.after_power_loss(seed), executor)
            again = await found.store.open(places, TOPIC_ID, CONFIG, founders)
            assert [replica.stopped_because for replica in again] == [None] * count
            for replica in again:
                await replica.close()
        for replica in made:
            await replica.close()


@pytest.mark.parametrize("refusals", [0, 1, 2])
async def test_partitions_that_are_made_together_are_there_after_a_power_loss(
    monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    """Also if the disk as a whole refuses to be synced before they have names, or after."""
    syncs = 0
    sync_everything = FaultFileSystem.sync_everything

    def sync(disk: FaultFileSystem) -> None:
        nonlocal syncs
        syncs += 1
        if syncs == refusals:
            raise OSError(5, "Input/output error")
        sync_everything(disk)

    monkeypatch.setattr(FaultFileSystem, "sync_everything", sync)
    monkeypatch.setattr(
        FaultFileSystem, "whole_disk", lambda disk, path, files: FaultWholeDisk(disk)
    )
    with ThreadPoolExecutor(1) as executor:
        disk = FaultFileSystem()
        node = Node(disk, executor)
        places = [TopicPartition(TOPIC, PartitionIndex(index)) for index in range(3)]
        founders = {index: [node.own] for index in range(3)}
        made = await node.store.create(places, TOPIC_ID, CONFIG, founders)
        assert syncs >= max(1, refusals)
        for seed in range(10):
            found = Node(disk.after_power_loss(seed), executor)
            again = await found.store.open(places, TOPIC_ID, CONFIG, founders)
            assert [replica.stopped_because for replica in again] == [None] * 3
            for replica in again:
                await replica.close()
        for replica in made:
            await replica.close()


async def test_groups_are_not_known_before_the_directory_of_their_topic_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ThreadPoolExecutor(1) as executor:
        node = Node(FaultFileSystem(), executor)

        def fail() -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(node.directory, "sync_topics", fail)
            with pytest.raises(OSError, match="Input/output"):
                await node.create()
            assert isinstance((await node.open()).stopped_because, OSError)
        made = await node.create()
        assert made.stopped_because is None
        await made.close()
