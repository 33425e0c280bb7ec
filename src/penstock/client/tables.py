"""Topics as Arrow tables, for people with data: no Spark, no loop over records.

The columns are those of the Spark source, which are those of Spark's own Kafka source. Partitions
are read by several threads. What is read is what was there when the reading was planned.
"""

import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.client.connection import bootstrap_or_default
from penstock.client.errors import ClientError
from penstock.client.positions import (
    AtOffset,
    AtTime,
    Beginning,
    Bound,
    End,
    Last,
    Position,
    position_of,
)
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.fetching import PartitionFetcher
from penstock.client.wire.settings import WireSettings
from penstock.columns.layout import COLUMNS
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

# The threads that read partitions, and the Arrow batches that they may be ahead of their reader.
READERS_MAX = 4
BATCHES_AHEAD_MAX = 8


@dataclass(frozen=True, slots=True)
class Stretch:
    """The offsets of a partition from `start` up to `stop`, which is not part of it."""

    partition: TopicPartition
    start: int
    stop: int


def read_arrow(
    topic: str,
    start: Bound | Mapping[int, Bound] = None,
    end: Bound | Mapping[int, Bound] = None,
    *,
    columns: Sequence[str] = COLUMNS,
    partitions: Sequence[int] | None = None,
    bootstrap: str | None = None,
) -> "pa.Table":
    """The records of a topic as an Arrow table, by partition and offset.

    `start` and `end` are offsets (42), times (a datetime, or text such as "2026-05-01T12:00"),
    "beginning", "end", the last N ("-10"), or how long ago ("15m"); or a mapping from partition to
    one of these. `end` itself is not part of it. Without them everything is read that is there.
    Reading does not move the position of any group.
    """
    with open_topic(
        topic, start, end, columns=columns, partitions=partitions, bootstrap=bootstrap
    ) as found:
        return found.table()


def read_pandas(topic: str, *arguments: Any, **options: Any) -> "pd.DataFrame":
    """The records of a topic as a pandas DataFrame; the arguments are those of `read_arrow`."""
    _require("pandas")
    return read_arrow(topic, *arguments, **options).to_pandas()


def read_polars(topic: str, *arguments: Any, **options: Any) -> "pl.DataFrame":
    """The records of a topic as a Polars DataFrame; the arguments are those of `read_arrow`."""
    _require("polars")
    import polars as pl

    frame = pl.from_arrow(read_arrow(topic, *arguments, **options))
    assert isinstance(frame, pl.DataFrame)
    return frame


def open_topic(
    topic: str,
    start: Bound | Mapping[int, Bound] = None,
    end: Bound | Mapping[int, Bound] = None,
    *,
    columns: Sequence[str] = COLUMNS,
    partitions: Sequence[int] | None = None,
    bootstrap: str | None = None,
) -> "TopicTable":
    """The same as something that can be read batch by batch, and more than once."""
    _require("pyarrow", "numpy")
    for name in columns:
        if name not in COLUMNS:
            raise ClientError(f"A topic has no column {name!r}; it has: {', '.join(COLUMNS)}.")
    cluster = WireCluster(WireSettings(bootstrap=bootstrap_or_default(bootstrap)))
    try:
        stretches = plan(cluster, topic, start, end, partitions)
    except BaseException:
        cluster.close()
        raise
    return TopicTable(cluster, topic, stretches, columns)


def plan(
    cluster: WireCluster,
    topic: str,
    start: Bound | Mapping[int, Bound],
    end: Bound | Mapping[int, Bound],
    partitions: Sequence[int] | None = None,
) -> list[Stretch]:
    """What there is to read, by partition; nothing of it is empty."""
    there = cluster.partitions([topic])[topic]
    chosen = there if partitions is None else sorted(set(partitions))
    unknown = sorted({*chosen, *_named(start), *_named(end)} - set(there))
    if unknown:
        raise ClientError(f"The topic {topic} has no partition {unknown[0]}.")
    wanted = [TopicPartition(TopicName(topic), PartitionIndex(index)) for index in chosen]
    now_ms = int(time.time() * 1000)
    earliest, latest = cluster.earliest(wanted), cluster.latest(wanted)

    def offsets(bound: Bound | Mapping[int, Bound], default: Position) -> dict[TopicPartition, int]:
        positions = {
            one: position_of(bound, one.partition, default, now_ms=now_ms) for one in wanted
        }
        times = {one: at.timestamp_ms for one, at in positions.items() if isinstance(at, AtTime)}
        by_time = cluster.at_timestamp(times) if times else {}
        return {
            one: _offset(at, earliest[one], latest[one], by_time.get(one))
            for one, at in positions.items()
        }

    starts, ends = offsets(start, Beginning()), offsets(end, End())
    return [Stretch(one, starts[one], ends[one]) for one in wanted if starts[one] < ends[one]]


def _named(bound: Bound | Mapping[int, Bound]) -> set[int]:
    return set(bound) if isinstance(bound, Mapping) else set()


def _offset(position: Position, earliest: int, latest: int, by_time: int | None) -> int:
    """Kept within what is there."""
    match position:
        case Beginning():
            return earliest
        case End():
            return latest
        case AtOffset(offset):
            return min(max(offset, earliest), latest)
        case Last(count):
            return max(latest - count, earliest)
        case AtTime():
            return latest if by_time is None else min(max(by_time, earliest), latest)


class TopicTable:
    """Stretches of a topic's partitions; each reading starts again from the first record.

    It exports itself to other libraries by Arrow's C stream interface, so that DuckDB and Polars
    read from the broker while they work.
    """

    def __init__(
        self,
        cluster: WireCluster,
        topic: str,
        stretches: Sequence[Stretch],
        columns: Sequence[str],
    ) -> None:
        self.topic = topic
        self.stretches = list(stretches)
        self.columns = tuple(columns)
        self.cluster = cluster

    def __enter__(self) -> "TopicTable":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.cluster.close()

    @property
    def size(self) -> int:
        """How many offsets there are to read, so at most that many records."""
        return sum(each.stop - each.start for each in self.stretches)

    @property
    def schema(self) -> "pa.Schema":
        from penstock.columns.arrow_layout import arrow_schema

        return arrow_schema(self.columns)

    def table(self) -> "pa.Table":
        """All of it, by partition and offset, whichever thread was faster."""
        import pyarrow as pa

        parts: list[list[pa.RecordBatch]] = [[] for _ in self.stretches]
        for index, batch in self._read():
            parts[index].append(batch)
        return pa.Table.from_batches([each for part in parts for each in part], self.schema)

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """In order within each partition."""
        return (batch for _, batch in self._read())

    def head(self, records_max: int) -> "pa.Table":
        """Some records from the start and the end of each stretch: to see what is in them."""
        share = max(1, records_max // max(1, 2 * len(self.stretches)))
        pieces = []
        for each in self.stretches if self.columns else ():
            pieces.append(Stretch(each.partition, each.start, min(each.stop, each.start + share)))
            begin = max(pieces[-1].stop, each.stop - share)
            if begin < each.stop:
                pieces.append(Stretch(each.partition, begin, each.stop))
        return TopicTable(self.cluster, self.topic, pieces, self.columns).table()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _read(self) -> "Iterator[tuple[int, pa.RecordBatch]]":
        """Batches with the number of their stretch, as they come."""
        if not self.stretches:
            return
        ready: queue.Queue[tuple[int, Any]] = queue.Queue(BATCHES_AHEAD_MAX)
        is_over = threading.Event()
        fetchers: list[PartitionFetcher] = []

        def give(item: tuple[int, Any]) -> bool:
            while not is_over.is_set():
                try:
                    ready.put(item, timeout=0.1)
                except queue.Full:
                    continue
                return True
            return False

        def work(index: int, stretch: Stretch) -> None:
            end: Exception | None = None
            try:
                with self.cluster.fetcher(*astuple(stretch)) as fetcher:
                    fetchers.append(fetcher)
                    for batch in self._decoded(stretch, fetcher):
                        if not give((index, batch)):
                            return
            except Exception as error:
                # Raised where the batches are taken.
                end = error
            give((index, end))

        left = len(self.stretches)
        with ThreadPoolExecutor(READERS_MAX, f"read {self.topic}") as threads:
            try:
                for index, stretch in enumerate(self.stretches):
                    threads.submit(work, index, stretch)
                while left:
                    index, item = ready.get()
                    if isinstance(item, Exception):
                        raise item
                    if item is None:
                        left -= 1
                    else:
                        yield index, item
            finally:
                is_over.set()
                threads.shutdown(wait=False, cancel_futures=True)
                # One may wait for a broker that is away.
                for fetcher in fetchers:
                    fetcher.close()

    def _decoded(self, stretch: Stretch, fetcher: PartitionFetcher) -> "Iterator[pa.RecordBatch]":
        from penstock.columns.decoding import Decoder

        decoder = Decoder(
            topic=self.topic,
            partition=stretch.partition.partition,
            columns=self.columns,
            start=stretch.start,
            stop=stretch.stop,
        )
        for fetched in fetcher:
            yield from decoder.decode(fetched.data, fetched.aborted)
        yield from decoder.finish()


def _require(*packages: str) -> None:
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ClientError(
            f"This needs {' and '.join(missing)}: pip install 'penstock-mq[arrow]'"
            f"{'' if missing[0] in ('pyarrow', 'numpy') else ' ' + missing[0]}."
        )
