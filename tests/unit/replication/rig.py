"""A node's partitions on a real disk that can be told to fail, and a clock that tests move."""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

from penstock.broker.partitions import Partitions
from penstock.model.ids import BrokerId, Term, TopicId, TopicName
from penstock.model.limits import Limits
from penstock.model.topic_config import TopicConfig
from penstock.records.batch import build_batch, decode_records, parse_header
from penstock.records.record import Record
from penstock.replication.replica import Replica
from penstock.replication.store import ReplicaStore
from penstock.storage.data_directory import DataDirectory
from penstock.storage.file_system import Bytes, File, RealFileSystem
from penstock.storage.open_files import OpenFiles

TOPIC = TopicName("orders")
TOPIC_ID = TopicId(UUID(int=77))
START_MS = 1_700_000_000_000


class TestClock:
    __test__ = False

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class Faults:
    """What the disk does wrong, set by tests while the node runs."""

    def __init__(self) -> None:
        self.write_error: int | None = None
        self.sync_error: int | None = None
        # Cleared to hold every write back until it is set again.
        self.writes_go_on = Event()
        self.writes_go_on.set()

    def on_write(self) -> None:
        assert self.writes_go_on.wait(10)
        if self.write_error is not None:
            raise OSError(self.write_error, errno.errorcode[self.write_error])

    def on_sync(self) -> None:
        if self.sync_error is not None:
            raise OSError(self.sync_error, errno.errorcode[self.sync_error])


class FaultyFile:
    def __init__(self, file: File, faults: Faults) -> None:
        self._file = file
        self._faults = faults

    def pwrite(self, data: Bytes, position: int) -> None:
        self._faults.on_write()
        self._file.pwrite(data, position)

    def pwritev(self, parts: Sequence[Bytes], position: int) -> None:
        self._faults.on_write()
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
        return FaultyFile(super().open(path), self._faults)

    def create(self, path: Path) -> Any:
        return FaultyFile(super().create(path), self._faults)


class Node:
    """Everything below the doors, as the server would build it."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.clock = TestClock()
        self.faults = Faults()
        self.file_system = FaultyFileSystem(self.faults)
        self.disk = ThreadPoolExecutor(4)
        self.background = ThreadPoolExecutor(1)
        self.directory = DataDirectory.open(path, node=BrokerId(0), file_system=self.file_system)
        self.open_files = OpenFiles(self.file_system, self.limits.open_segments_max)
        self.store = ReplicaStore(
            directory=self.directory,
            file_system=self.file_system,
            open_files=self.open_files,
            clock=self.clock,
            executor=self.disk,
            background=self.background,
            limits=self.limits,
            term=Term(self.directory.incarnation),
        )
        self.partitions = Partitions(store=self.store)

    async def replica(self, config: TopicConfig | None = None) -> Replica:
        """One partition, made or opened as it is on disk."""
        config = config or TopicConfig()
        if TOPIC_ID in self.directory.list_topic_directories():
            await self.partitions.open(TOPIC, TOPIC_ID, [0], config)
        else:
            await self.partitions.create(TOPIC, TOPIC_ID, [0], config)
        return self.partitions.get(TOPIC, 0)

    def crash(self) -> None:
        """Lets go of the directory as a killed process would: nothing is written any more."""
        self.disk.shutdown(wait=True)
        self.background.shutdown(wait=True)
        self.directory.close()

    async def stop(self) -> None:
        await self.partitions.close()
        self.crash()


@asynccontextmanager
async def running(path: Path, limits: Limits | None = None) -> AsyncIterator[Node]:
    node = Node(path, limits)
    try:
        yield node
    finally:
        node.faults.writes_go_on.set()
        await node.stop()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 20)

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
