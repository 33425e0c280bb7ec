"""What tests of archives share: records, archives made of them without Spark, a target topic."""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.client.wire.fetching import Fetched
from penstock.client.wire.stamping import NO_SEQUENCE, NOBODY, stamp_producer
from penstock.columns.arrow_layout import arrow_schema
from penstock.columns.layout import COLUMNS
from penstock.pipelines.archives.archiving_task import Target, archive_range
from penstock.pipelines.archives.description import Description, write_description
from penstock.pipelines.archives.ledger import Entry
from penstock.pipelines.archives.receipts import Receipt
from penstock.pipelines.archives.receipts_sink import ReceiptsSink
from penstock.pipelines.lakes.opening import keeps_partition_columns, open_table
from penstock.pipelines.sinks.sink import Epoch, Written
from penstock.pipelines.specification.model import LakeFormat
from penstock.spark.options.reading import read_options
from penstock.spark.reading.topic_range import TopicRange

TOPIC = "readings"
TOPIC_ID = "id-of-readings"
QUERY = "query-1"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
OPTIONS = read_options({"kafka.bootstrap.servers": "unused:1", "subscribe": TOPIC}, streaming=True)


class Record(NamedTuple):
    offset: int
    value: bytes | None = b"value"
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    seconds: int | None = None
    """After BEGIN; the offset, if it is not given."""

    @property
    def time(self) -> datetime:
        return BEGIN + timedelta(seconds=self.offset if self.seconds is None else self.seconds)


def records(offsets: Iterable[int]) -> list[Record]:
    return [Record(offset, value=b"value-%d" % offset) for offset in offsets]


def batch_of(partition: int, rows: Sequence[Record]) -> pa.RecordBatch:
    """As the decoder hands them over."""
    columns: dict[str, list[Any]] = {
        "key": [row.key for row in rows],
        "value": [row.value for row in rows],
        "topic": [TOPIC] * len(rows),
        "partition": [partition] * len(rows),
        "offset": [row.offset for row in rows],
        "timestamp": [row.time for row in rows],
        "timestampType": [0] * len(rows),
        "headers": [
            [{"key": name, "value": value} for name, value in row.headers] or None for row in rows
        ],
    }
    return pa.record_batch(columns, schema=arrow_schema(COLUMNS))


class TestArchive:
    """An archive that is written epoch by epoch, by anybody who holds the object."""

    __test__ = False

    def __init__(
        self,
        root: Path,
        lake_format: LakeFormat = LakeFormat.PARQUET,
        *,
        is_by_date: bool = False,
        partitions: int = 2,
    ) -> None:
        self.root = root
        self.partitions = partitions
        self.description = Description(
            topic=TOPIC,
            topic_id=TOPIC_ID,
            partitions=partitions,
            format=lake_format,
            is_by_date=is_by_date,
        )
        write_description(root, self.description)
        self.batch = 0

    def sink(self, steps: Callable[[str], None] = lambda step: None) -> ReceiptsSink:
        """As after a restart: it knows nothing but what is in the folder."""
        table = open_table(self.description.format, str(self.root))
        return ReceiptsSink(
            self.root, table, self.description, lambda: self.partitions, steps=steps
        )

    def receipt(
        self,
        partition: int,
        start: int,
        stop: int,
        rows: Sequence[Record] | None = None,
        lost: tuple[int, int] | None = None,
    ) -> Receipt:
        """That of a task which found these rows, or one at each offset, between the two."""
        found = records(range(start, stop)) if rows is None else rows

        def scanned(wanted: TopicRange, options: object, note: Any) -> Iterator[pa.RecordBatch]:
            if lost is not None:
                note(*lost)
            if found:
                yield batch_of(partition, found)

        target = Target(
            root=str(self.root),
            is_by_date=self.description.is_by_date,
            keeps_partition_columns=keeps_partition_columns(self.description.format),
        )
        return archive_range(TopicRange(TOPIC, partition, start, stop), OPTIONS, target, scanned)

    def epoch(self, batch: int, query: str = QUERY) -> Epoch:
        return Epoch(query=query, batch=batch, pipeline="archive", flow=TOPIC)

    def add(self, *receipts: Receipt, query: str = QUERY) -> Entry:
        """One more epoch, by a sink of its own."""
        sink = self.sink()
        sink.take(receipts, self.epoch(self.batch, query))
        self.batch += 1
        assert sink.last is not None
        return sink.last

    def filled(self) -> "TestArchive":
        """Three epochs: partition 0 has offsets 0 to 29, partition 1 has 5 to 14."""
        self.add(self.receipt(0, 0, 10))
        self.add(self.receipt(0, 10, 20), self.receipt(1, 5, 15))
        self.add(self.receipt(0, 20, 30))
        return self


class Frame:
    """Stands for a DataFrame of receipts."""

    def __init__(self, receipts: Sequence[Receipt]) -> None:
        self._receipts = receipts
        self.collected = 0

    def collect(self) -> list[tuple[str]]:
        self.collected += 1
        return [(receipt.to_json(),) for receipt in self._receipts]


def write(sink: ReceiptsSink, frame: Frame, epoch: Epoch) -> Written:
    return sink.write(frame, epoch)  # type: ignore[arg-type]


class Crash(Exception):
    """Stands for the end of the process."""


def crash_at(step: str) -> Callable[[str], None]:
    def steps(reached: str) -> None:
        if reached == step:
            raise Crash

    return steps


_BASE_OFFSET = struct.Struct(">q")


class MemoryTopic:
    """A topic of one partition, as far as a replay asks a cluster for it."""

    def __init__(self, base: int = 0) -> None:
        self.batches: list[tuple[int, bytes]] = []
        self.first = self.end = base
        self.batches_until_crash: int | None = None
        self.fetches = 0

    def latest(self, places: Iterable[Any]) -> dict[Any, int]:
        return dict.fromkeys(places, self.end)

    def earliest(self, places: Iterable[Any]) -> dict[Any, int]:
        return dict.fromkeys(places, self.first)

    def message_bytes_max(self, topic: str) -> int | None:
        return None

    @contextmanager
    def producer(self) -> Iterator["MemoryTopic"]:
        yield self

    def send(self, place: Any, batch: bytearray, count: int) -> None:
        if self.batches_until_crash == 0:
            raise Crash
        if self.batches_until_crash is not None:
            self.batches_until_crash -= 1
        stamp_producer(batch, NOBODY, NO_SEQUENCE)
        _BASE_OFFSET.pack_into(batch, 0, self.end)
        self.batches.append((self.end, bytes(batch)))
        self.end += count

    def flush(self) -> None:
        """Everything is there at once."""

    @contextmanager
    def fetcher(self, place: Any, start: int, stop: int) -> Iterator[list[Fetched]]:
        self.fetches += 1
        wanted = [data for offset, data in self.batches if offset < stop]
        yield [Fetched(memoryview(data), ()) for data in wanted]
