"""What the tests of storage share: logs on a simulated disk, batches, and how to read them back."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.model.ids import Offset
from penstock.model.topic_config import TopicConfig
from penstock.records.batch import BatchHeader, build_batch, decode_records, parse_header
from penstock.records.compression import Codec
from penstock.records.own_entries import OwnKind, build_own
from penstock.records.record import Record
from penstock.storage.file_system import FileSystem
from penstock.storage.log import Log, LogBase
from penstock.storage.open_files import OpenFiles
from tests.unit.clocks import START_MS, ManualClock

DIRECTORY = Path("/data/topics/t/0")
# As if a snapshot had been installed, so that batches of term 1 can follow at once.
BASE = LogBase(term=1)


def ignore_batch(header: BatchHeader) -> None:
    pass


class Bench:
    """Makes and opens logs on one disk."""

    def __init__(
        self,
        disk: FileSystem,
        config: TopicConfig | None = None,
        *,
        directory: Path = DIRECTORY,
        open_max: int = 4,
    ) -> None:
        self.disk = disk
        self.config = config or TopicConfig()
        self.directory = directory
        self.clock = ManualClock()
        self.open_files = OpenFiles(disk, open_max)

    def parts(self) -> dict[str, Any]:
        return {
            "config": self.config,
            "file_system": self.disk,
            "open_files": self.open_files,
            "clock": self.clock,
        }

    def create(self, base: LogBase = BASE) -> Log:
        for parent in self.disk.make_directory(self.directory.parent):
            self.disk.sync_directory(parent)
        (log,) = Log.create([(self.directory, base)], **self.parts())
        self.disk.sync_directory(self.directory.parent)
        return log

    def open(
        self,
        on_batch: Callable[[BatchHeader], None] = ignore_batch,
        *,
        is_shared: bool = False,
    ) -> Log:
        return Log.open(
            self.directory, on_batch=on_batch, is_shared=lambda _: is_shared, **self.parts()
        )

    def segment(self, base_offset: int, suffix: str = ".log") -> Path:
        return self.directory / f"{base_offset:020d}{suffix}"


def record(
    value: bytes | None = b"value", key: bytes | None = None, timestamp_ms: int = START_MS
) -> Record:
    return Record(key=key, value=value, timestamp_ms=timestamp_ms)


def batch(
    offset: int,
    *records: Record,
    term: int = 1,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    producer_id, producer_epoch, base_sequence = producer
    return build_batch(
        records or (record(),),
        base_offset=offset,
        term=term,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def own(log: Log, kind: OwnKind, payload: bytes = b"", *, term: int | None = None) -> bytes:
    """The own entry of Raft that comes next."""
    term = log.last_term if term is None else term
    offset = log.end_offset
    return build_own(kind, index=log.last_index + 1, term=term, offset=offset, payload=payload)


def fill(log: Log, count: int, *, value_bytes: int = 20, term: int = 1) -> None:
    """Appends this many batches of one record each, synced one by one."""
    if term != log.last_term:
        log.append([own(log, OwnKind.NEW_TERM, term=term)])
    for _ in range(count):
        offset = log.end_offset
        log.append([batch(offset, record(b"%d" % offset + bytes(value_bytes)), term=term)])
        log.sync()


def read_all(log: Log, *, bytes_max: int = 1000, start: int | None = None) -> list[Record]:
    """Every record from the start (or `start`) to the end, as a consumer would read them."""
    return [
        found
        for data in read_batches(log, bytes_max=bytes_max, start=start)
        for found in decode_records(data)
    ]


def read_batches(log: Log, *, bytes_max: int = 1000, start: int | None = None) -> Iterator[bytes]:
    offset = log.start_offset if start is None else start
    while (found := log.read(Offset(offset), bytes_max, log.end_offset)) is not None:
        data = memoryview(found.read())
        found.release()
        while len(data):
            header = parse_header(data)
            yield bytes(data[: header.size])
            offset = header.next_offset
            data = data[header.size :]


def headers(log: Log) -> list[BatchHeader]:
    return [parse_header(data) for data in read_batches(log)]


def offsets(records: Sequence[Record]) -> list[int]:
    return [found.offset for found in records]


def checkpoint(log: Log, state: bytes = b"") -> None:
    end = log.end_offset
    log.checkpoint(state=state, state_offset=end, flushed_offset=end)
