"""What a task of a replay does: bring the records of one partition into the target's partition.

Its progress is the end of the target: what is between the base, at which the replay began, and
the end is compared with the archive, record by record, and the rest is written behind it. So an
attempt that comes after a killed one goes on where that one got to, and a record of somebody else
in between is noticed instead of taken for one of the archive's.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.errors import place as words_for
from penstock.client.wire.producing import BatchProducer
from penstock.client.wire.settings import WireSettings
from penstock.columns.decoding import Decoder
from penstock.columns.encoding import Encoder, EncoderColumns
from penstock.model.errors import Explained
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.pipelines.archives.archived_rows import (
    RECORD_COLUMNS,
    Stretch,
    archived_rows,
    timestamps_ms,
)
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.archives.row_queue import RowQueue, same_records
from penstock.records.compression import Codec

BATCH_BYTES_MAX = 512 * 1024
# What can't be compressed grows by less than this share of it.
_GROWTH_SHARE = 32
# How often somebody else's records are looked for.
_CHECK_BYTES = 64 * 1024 * 1024
# An attempt whose process was killed may have a request on its way; the end stands still after it.
_SETTLED_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReplay:
    """One partition's share of a replay; it travels to executors by pickle."""

    stretch: Stretch
    topic: str
    base: int
    """The end of the target's partition before the replay's first record."""
    wire: WireSettings
    codec: Codec

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(TopicName(self.topic), PartitionIndex(self.stretch.partition))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a partition; a refusal is for the user, and trying again would not help."""

    partition: int
    records: int = 0
    """Brought back in all, by this attempt and earlier ones."""
    refusal: str | None = None


def run_replay(wanted: PartitionReplay) -> Outcome:
    partition = wanted.stretch.partition
    try:
        with WireCluster(wanted.wire) as cluster:
            records = replay_partition(wanted, cluster)
    except Explained as refusal:
        return Outcome(partition=partition, refusal=str(refusal))
    return Outcome(partition=partition, records=records)


def replay_partition(
    wanted: PartitionReplay,
    cluster: WireCluster,
    pause: Callable[[float], None] = time.sleep,
) -> int:
    """All records of the stretch are in the target when this returns, each once: how many."""
    rows = RowQueue(archived_rows(wanted.stretch))
    end = settled_end(cluster, wanted, pause)
    if end > wanted.base:
        confirm(cluster, wanted, end, rows)
    sent = end - wanted.base
    with cluster.producer() as producer:
        writing = _Writing(cluster, producer, wanted, sent)
        for batch in rows.rest():
            writing.write(batch)
        producer.flush()
        writing.check_end()
    return writing.sent


def settled_end(
    cluster: WireCluster, wanted: PartitionReplay, pause: Callable[[float], None]
) -> int:
    """The end of the target's partition, once it stands still."""
    place = wanted.place
    end = cluster.latest([place])[place]
    while end > wanted.base:
        pause(_SETTLED_S)
        later = cluster.latest([place])[place]
        if later == end:
            break
        end = later
    if end < wanted.base:
        raise ArchiveRefused(
            f"The end of {words_for(place)} is at offset {end}, before offset {wanted.base} at"
            " which the replay started: was the topic deleted and created again?"
        )
    return end


def confirm(cluster: WireCluster, wanted: PartitionReplay, end: int, rows: RowQueue) -> None:
    """Take those rows that are in the target already; refuses if it holds anything else."""
    place = wanted.place
    # Retention may have deleted the first of them, which then can't be compared.
    start = max(wanted.base, cluster.earliest([place])[place])
    rows.skip(min(start, end) - wanted.base)
    compared = start
    for found in _target_rows(cluster, wanted, start, end):
        while found.num_rows:
            mine = rows.take(found.num_rows)
            if mine is None or not same_records(mine, found.slice(0, mine.num_rows)):
                raise _foreign(place)
            found = found.slice(mine.num_rows)
            compared += mine.num_rows
    if compared != max(start, end):
        raise _foreign(place)


def _target_rows(
    cluster: WireCluster, wanted: PartitionReplay, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    decoder = Decoder(
        topic=wanted.topic,
        partition=wanted.stretch.partition,
        columns=RECORD_COLUMNS,
        start=start,
        stop=end,
    )
    with cluster.fetcher(wanted.place, start, end) as fetcher:
        for fetched in fetcher:
            yield from decoder.decode(fetched.data, fetched.aborted)
    yield from decoder.finish()


class _Writing:
    def __init__(
        self, cluster: WireCluster, producer: BatchProducer, wanted: PartitionReplay, sent: int
    ) -> None:
        self._cluster = cluster
        self._producer = producer
        self._wanted = wanted
        self._encoder = Encoder(
            codec=wanted.codec, batch_bytes_max=_batch_bytes_max(cluster, wanted)
        )
        self._bytes_unchecked = 0
        self.sent = sent

    def write(self, batch: pa.RecordBatch) -> None:
        columns = EncoderColumns(
            key=batch.column("key"),
            value=batch.column("value"),
            headers=batch.column("headers"),
            timestamps_ms=timestamps_ms(batch),
        )
        for encoded in self._encoder.encode(columns, np.arange(batch.num_rows)):
            self._bytes_unchecked += len(encoded.data)
            self.sent += encoded.count
            self._producer.send(self._wanted.place, encoded.data, encoded.count)
        if self._bytes_unchecked >= _CHECK_BYTES:
            self._bytes_unchecked = 0
            self.check_end()

    def check_end(self) -> None:
        """Nobody else may write meanwhile: the target holds no more than was sent."""
        place = self._wanted.place
        end = self._cluster.latest([place])[place]
        if end > self._wanted.base + self.sent:
            raise _foreign(place)


def _batch_bytes_max(cluster: WireCluster, wanted: PartitionReplay) -> int:
    limit = cluster.message_bytes_max(wanted.topic)
    if limit is None:
        return BATCH_BYTES_MAX
    if wanted.codec is not Codec.NONE:
        # The limit holds after compression, which makes some data larger.
        limit -= limit // _GROWTH_SHARE
    return min(limit, BATCH_BYTES_MAX)


def _foreign(place: TopicPartition) -> ArchiveRefused:
    what = words_for(place)
    return ArchiveRefused(
        f"Another producer has written to {what} since the replay started, so the replay can't"
        " finish there: replay into a new topic."
    )
