"""Replicas on a real disk that can be told to fail, and a clock that tests move."""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from threading import Event
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from penstock.model.ids import (
    BrokerId,
    PartitionId,
    PartitionIndex,
    ReplicaId,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.model.limits import Limits
from penstock.model.topic_config import TopicConfig
from penstock.raft.messages import Message
from penstock.raft.settings import RaftSettings
from penstock.records.batch import build_batch, decode_records, parse_header
from penstock.records.record import Record
from penstock.replication.group_member import GroupMember
from penstock.replication.outbound import Outbound
from penstock.replication.pressure import Pressure
from penstock.replication.replica import Replica
from penstock.replication.store import ReplicaStore
from penstock.replication.write_side import WriteSide
from penstock.storage.data_directory import DataDirectory
from penstock.storage.file_system import Bytes, File, RealFileSystem
from penstock.storage.hard_states import HardStates
from penstock.storage.open_files import OpenFiles
from tests.unit.clocks import START_MS, ManualClock

SETTINGS = RaftSettings(heartbeats_by_host=True)
TICK_S = 0.005
TOPIC = TopicName("orders")
TOPIC_ID = TopicId(UUID(int=77))
# Only what hangs takes so long, however busy the machine is.
PATIENCE_S = 60
# Ticks come so fast here that a disk which is held up for a moment would be late.
NEVER_LATE_S = 1e6

P = ParamSpec("P")
T = TypeVar("T")


class Faults:
    """What the disk does wrong, set by tests while the node runs."""

    def __init__(self) -> None:
        self.write_error: int | None = None
        # Only files whose names end like this fail to be written.
        self.failing_suffix = ""
        self.sync_error: int | None = None
        # Cleared to hold every write back until it is set again.
        self.writes_go_on = Event()
        self.writes_go_on.set()

    def on_write(self, path: Path) -> None:
        assert self.writes_go_on.wait(PATIENCE_S)
        if self.write_error is not None and path.name.endswith(self.failing_suffix):
            raise OSError(self.write_error, errno.errorcode[self.write_error])

    def on_sync(self) -> None:
        if self.sync_error is not None:
            raise OSError(self.sync_error, errno.errorcode[self.sync_error])


class FaultyFile:
    def __init__(self, file: File, path: Path, faults: Faults) -> None:
        self._file = file
        self._path = path
        self._faults = faults

    def pwrite(self, data: Bytes, position: int) -> None:
        self._faults.on_write(self._path)
        self._file.pwrite(data, position)

    def pwritev(self, parts: Sequence[Bytes], position: int) -> None:
        self._faults.on_write(self._path)
        self._file.pwritev(parts, position)

    def sync(self) -> None:
        self._faults.on_sync()
        self._file.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class FaultyFileSystem(RealFileSystem):
    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def open(self, path: Path) -> Any:
        return FaultyFile(super().open(path), path, self._faults)

    def create(self, path: Path) -> Any:
        return FaultyFile(super().create(path), path, self._faults)


class DiskThreads(ThreadPoolExecutor):
    """Knows whether they have anything to do."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self._jobs: set[Future[Any]] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._jobs)

    async def idle(self) -> None:
        """Returns when all jobs are over: one may tell of its end before its thread comes to it."""
        await asyncio.gather(*map(asyncio.wrap_future, list(self._jobs)))

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        job = super().submit(work, *args, **kwargs)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return job


class Alone:
    """The way out of a node that has no peers."""

    def __init__(self) -> None:
        self.announced = 0

    def send(self, key: PartitionId, messages: Sequence[Message]) -> None:
        raise AssertionError(f"a group of one has nobody to write to: {messages}")

    def has_room(self, to: ReplicaId) -> bool:
        return True

    def announce(self, replica: GroupMember) -> None:
        self.announced += 1


class Node:
    """The replicas of one node, as the server would build them."""

    def __init__(
        self,
        path: Path,
        limits: Limits | None = None,
        *,
        number: int = 0,
        outbound: Outbound | None = None,
        clock: ManualClock | None = None,
        raft_settings: RaftSettings = SETTINGS,
        disk_timeout_s: float = NEVER_LATE_S,
    ) -> None:
        self.limits = limits or Limits()
        self.clock = clock or ManualClock()
        self.faults = Faults()
        self.file_system = FaultyFileSystem(self.faults)
        self.disk = DiskThreads(4)
        self.background = ThreadPoolExecutor(1)
        self.directory = DataDirectory.open(
            path, node=BrokerId(number), file_system=self.file_system
        )
        self.open_files = OpenFiles(self.file_system, self.limits.open_segments_max)
        self.id = ReplicaId(BrokerId(number), self.directory.directory_id)
        self.replicas: dict[PartitionId, Replica] = {}
        self.store = ReplicaStore(
            directory=self.directory,
            file_system=self.file_system,
            open_files=self.open_files,
            clock=self.clock,
            executor=self.disk,
            background=self.background,
            write_side=WriteSide(self.disk, disk_timeout_s),
            limits=self.limits,
            own=self.id,
            outbound=outbound or Alone(),
            hard_states=HardStates.open(
                self.directory.hard_states_path, file_system=self.file_system
            ),
            random_below=Random(number).randrange,
            raft_settings=raft_settings,
        )
        self._ticker: asyncio.TimerHandle | None = None

    @property
    def pressure(self) -> Pressure:
        return self.store.pressure

    @property
    def is_writing(self) -> bool:
        """Whether its disk works, and no test holds that up."""
        return self.disk.is_busy and self.faults.writes_go_on.is_set()

    async def make(
        self,
        config: TopicConfig | None = None,
        *,
        topic_id: TopicId = TOPIC_ID,
        founders: Sequence[ReplicaId] | None = None,
    ) -> Replica:
        """One partition, made or opened as it is on disk; its leadership is not waited for."""
        partition = TopicPartition(TOPIC, PartitionIndex(0))
        founding = {0: [self.id] if founders is None else founders}
        opened = await self.store.open([partition], topic_id, config or TopicConfig(), founding)
        self.replicas[opened[0].key] = opened[0]
        return opened[0]

    async def replica(
        self, config: TopicConfig | None = None, *, topic_id: TopicId = TOPIC_ID
    ) -> Replica:
        """One partition that leads its group of one."""
        replica = await self.make(config, topic_id=topic_id)
        if replica.stopped_because is None:
            await replica.settled(PATIENCE_S)
        return replica

    def tick(self) -> None:
        self.store.tick()
        for replica in list(self.replicas.values()):
            replica.tick()

    def start_ticking(self) -> None:
        self.tick()
        self._ticker = asyncio.get_running_loop().call_later(TICK_S, self.start_ticking)

    def crash(self) -> None:
        """Lets go of the directory as a killed process would: nothing is written any more."""
        if self._ticker is not None:
            self._ticker.cancel()
        self.disk.shutdown(wait=True)
        self.background.shutdown(wait=True)
        self.directory.close()

    async def close_replicas(self) -> None:
        await asyncio.gather(*(replica.close() for replica in self.replicas.values()))
        await self.store.close()

    async def stop(self) -> None:
        await self.close_replicas()
        self.crash()


@asynccontextmanager
async def running(path: Path, limits: Limits | None = None) -> AsyncIterator[Node]:
    node = Node(path, limits)
    node.start_ticking()
    try:
        yield node
    finally:
        node.faults.writes_go_on.set()
        await node.stop()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), PATIENCE_S)

    asyncio.run(bounded())


def batch(
    *values: bytes,
    key: bytes | None = b"k",
    timestamp_ms: int = START_MS,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    records = [Record(timestamp_ms=timestamp_ms, key=key, value=value) for value in values]
    return build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def values_of(data: bytes) -> list[bytes | None]:
    values = []
    position = 0
    while position < len(data):
        header = parse_header(data, position)
        one = data[position : position + header.size]
        values += [record.value for record in decode_records(one)]
        position += header.size
    return values


def read_values(
    replica: Replica, offset: int = 0, bytes_max: int = 1_000_000
) -> list[bytes | None]:
    """All values from the batch at `offset` up to the high watermark."""
    values: list[bytes | None] = []
    while True:
        found = replica.read(offset, bytes_max)
        if found is None:
            return values
        data = found.read()
        found.release()
        values += values_of(data)
        position = 0
        while position < len(data):
            header = parse_header(data, position)
            offset = header.next_offset
            position += header.size
