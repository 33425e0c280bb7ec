"""One task of a write: its rows go to their topics, and it ends when all are acknowledged."""

import random
from collections.abc import Iterable, Iterator

import pyarrow as pa

from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.producing import BatchProducer
from penstock.columns.encoding import Encoder, EncoderColumns
from penstock.records.compression import Codec
from penstock.spark.options.writing import WriteOptions
from penstock.spark.tracing import TaskTrace, with_traceparent
from penstock.spark.writing.epoch import TaskAttempt
from penstock.spark.writing.layout import InputLayout
from penstock.spark.writing.receipt import Receipt
from penstock.spark.writing.routing import Router, Share
from penstock.spark.writing.slab import Slab, SlabTarget, slabs

# What can't be compressed grows by less than this share of it.
_GROWTH_SHARE = 32


def write_task(
    batches: Iterable[pa.RecordBatch],
    *,
    layout: InputLayout,
    options: WriteOptions,
    attempt: TaskAttempt,
) -> Receipt:
    """Write all rows; raises before it has told anybody that a row is written which is not."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        # Spark makes tasks without rows freely; they need no broker.
        return Receipt(attempt=attempt, records=0, record_batches=0)
    if not options.is_traced:
        return _write_rows(_chain(first, filled), layout, options, attempt, None)
    trace = TaskTrace.begin(attempt)
    try:
        receipt = _write_rows(_chain(first, filled), layout, options, attempt, trace)
    except Exception as error:
        trace.end_write(layout.topic_name, 0, str(error))
        raise
    trace.end_write(layout.topic_name, receipt.records)
    return receipt


def _write_rows(
    batches: Iterable[pa.RecordBatch],
    layout: InputLayout,
    options: WriteOptions,
    attempt: TaskAttempt,
    trace: TaskTrace | None,
) -> Receipt:
    with (
        WireCluster(options.wire) as cluster,
        cluster.producer(
            acks=options.acks,
            idempotent=options.idempotent,
            bytes_in_flight_max=options.bytes_in_flight_max,
        ) as producer,
    ):
        writer = _TaskWriter(layout, options, cluster, producer, trace)
        writer.write(batches)
        producer.flush()
    return Receipt(attempt=attempt, records=writer.records, record_batches=writer.record_batches)


class _TaskWriter:
    """Takes slabs apart and hands the producer one record batch after the other."""

    def __init__(
        self,
        layout: InputLayout,
        options: WriteOptions,
        cluster: WireCluster,
        producer: BatchProducer,
        trace: TaskTrace | None,
    ) -> None:
        self._layout = layout
        self._trace = trace
        self._options = options
        self._cluster = cluster
        self._producer = producer
        self._target = SlabTarget(options.batch_bytes_max)
        self._encoders: dict[str, Encoder] = {}
        self._router = Router(
            _Topics(cluster),
            topic=layout.topic_name,
            batch_bytes=options.batch_bytes_max,
            choose=random.randrange,
            ignore_keys=options.ignore_keys,
        )
        self.records = 0
        self.record_batches = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        for slab in slabs(batches, self._layout, self._target):
            self._write_slab(slab)

    def _write_slab(self, slab: Slab) -> None:
        headers = slab.headers
        if self._trace is not None:
            headers = with_traceparent(headers, slab.count, self._trace.context)
        columns = EncoderColumns(
            key=slab.key,
            value=slab.value,
            headers=headers,
            timestamps_ms=slab.timestamps_ms,
        )
        partitions_in_use = 0
        for share in self._router.shares(slab):
            partitions_in_use += 1
            self._write_share(columns, share)
        self._target.note_partitions(partitions_in_use)

    def _write_share(self, columns: EncoderColumns, share: Share) -> None:
        encoder = self._encoder(share.partition.topic)
        for batch in encoder.encode(columns, share.rows):
            self._producer.send(share.partition, batch.data, batch.count)
            self.records += batch.count
            self.record_batches += 1

    def _encoder(self, topic: str) -> Encoder:
        """The topic's own, because topics differ in how large a batch they take."""
        encoder = self._encoders.get(topic)
        if encoder is None:
            encoder = Encoder(
                codec=self._options.codec,
                level=self._options.codec_level,
                batch_bytes_max=self._batch_bytes_max(topic),
            )
            self._encoders[topic] = encoder
        return encoder

    def _batch_bytes_max(self, topic: str) -> int:
        wanted = self._options.batch_bytes_max
        limit = self._cluster.message_bytes_max(topic)
        if limit is None:
            return wanted
        if self._options.codec is not Codec.NONE:
            # The limit holds after compression, which makes some data larger.
            limit -= limit // _GROWTH_SHARE
        return min(limit, wanted)


class _Topics:
    """The cluster as routing sees it; a missing topic is made, if the broker permits that."""

    def __init__(self, cluster: WireCluster) -> None:
        self._cluster = cluster

    def partition_count(self, topic: str, *, refresh: bool = False) -> int:
        if refresh:
            return len(self._cluster.partitions([topic])[topic])
        return self._cluster.partition_count(topic, may_create=True)


def _chain(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others
