"""Proves what a task sends: full record batches, in order, and nothing without rows."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from penstock.client.errors import ClientError
from penstock.model.ids import TopicPartition
from penstock.records.batch import decode_records, parse_header
from penstock.records.record import Record
from penstock.spark.options.writing import WriteOptions, write_options
from penstock.spark.writing import task
from penstock.spark.writing.epoch import task_attempt
from penstock.spark.writing.receipt import Receipt
from tests.unit.spark.writing.arrow_rows import arrow_batch, layout_of

ATTEMPT = task_attempt(None)


class FakeCluster:
    """A cluster and its producer in one, which keeps what it is sent."""

    def __init__(self, partitions: int = 1, message_bytes_max: int | None = None) -> None:
        self.partitions_each = partitions
        self.limit = message_bytes_max
        self.sent: dict[TopicPartition, list[tuple[bytearray, int]]] = defaultdict(list)
        self.flushed = 0
        self.flush_error: ClientError | None = None
        self.made: list[Any] = []

    def __call__(self, settings: Any) -> "FakeCluster":
        self.made.append(settings)
        return self

    def __enter__(self) -> "FakeCluster":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @contextmanager
    def producer(self, **_: Any) -> Iterator["FakeCluster"]:
        yield self

    def partition_count(self, topic: str, *, may_create: bool) -> int:
        assert may_create
        return self.partitions_each

    def message_bytes_max(self, topic: str) -> int | None:
        return self.limit

    def send(self, partition: TopicPartition, batch: bytearray, count: int) -> None:
        self.sent[partition].append((batch, count))

    def flush(self) -> None:
        self.flushed += 1
        if self.flush_error is not None:
            raise self.flush_error

    def records(self, partition: int, topic: str = "orders") -> list[Record]:
        batches = self.sent[TopicPartition(topic, partition)]  # type: ignore[arg-type]
        return [record for batch, _ in batches for record in decode_records(batch)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    fake = FakeCluster()
    monkeypatch.setattr(task, "WireCluster", fake)
    return fake


def options(**given: str) -> WriteOptions:
    named = {name.replace("_", "."): value for name, value in given.items()}
    base = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "orders"}
    return write_options(base | named, streaming=False)


def run(batches: list[pa.RecordBatch], **given: str) -> Receipt:
    return task.write_task(
        iter(batches), layout=layout_of(batches[0]), options=options(**given), attempt=ATTEMPT
    )


def test_rows_arrive_whole_and_are_counted(cluster: FakeCluster) -> None:
    headers = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None]
    receipt = run([arrow_batch(key=[b"k", None], value=[None, b""], headers=headers)])
    assert receipt == Receipt(attempt=ATTEMPT, records=2, record_batches=receipt.record_batches)
    found = sorted(cluster.records(0), key=lambda record: record.key is None)
    assert [(record.key, record.value) for record in found] == [(b"k", None), (None, b"")]
    assert found[0].headers == (("a", b"1"), ("a", None))
    assert cluster.flushed == 1


def test_a_task_without_rows_asks_nobody(cluster: FakeCluster) -> None:
    receipt = run([arrow_batch(value=[]), arrow_batch(value=[])])
    assert receipt.records == 0
    assert cluster.made == []


def test_small_arrow_batches_and_many_partitions_still_fill_record_batches(
    cluster: FakeCluster,
) -> None:
    cluster.partitions_each = 50
    batches = [
        arrow_batch(key=[b"%d" % (start + row) for row in range(100)], value=[bytes(200)] * 100)
        for start in range(0, 100_000, 100)
    ]
    receipt = run(batches)
    assert receipt.records == 100_000
    # Twenty megabytes: each partition's share fits one record batch per slab.
    assert receipt.record_batches <= 50 * 4


def test_batches_respect_what_the_topic_takes(cluster: FakeCluster) -> None:
    cluster.limit = 2000
    run([arrow_batch(value=[bytes(300)] * 100)])
    sizes = [len(batch) for batch, _ in cluster.sent[TopicPartition("orders", 0)]]  # type: ignore[arg-type]
    assert len(sizes) >= 15
    assert max(sizes) <= 2000


def test_record_batches_are_such_as_a_producer_may_stamp(cluster: FakeCluster) -> None:
    run([arrow_batch(value=[b"a", b"b"])], kafka_compression_type="zstd")
    ((batch, count),) = cluster.sent[TopicPartition("orders", 0)]  # type: ignore[arg-type]
    header = parse_header(batch)
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (0, 1, 2)
    assert (header.size, header.codec.name, count) == (len(batch), "ZSTD", 2)


def test_a_task_whose_rows_are_not_acknowledged_fails(cluster: FakeCluster) -> None:
    cluster.flush_error = ClientError("The broker said no.")
    with pytest.raises(ClientError, match="said no"):
        run([arrow_batch(value=[b"a"])])
