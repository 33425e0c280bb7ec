"""What tests of the data source share: records to produce, rows to compare, queries to run."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Producer
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipelines.running.failures import NO_PYTHON
from penstock.pipelines.running.running_flow import INITIALISING
from tests.waiting import wait_until

DELIVERY_TIMEOUT_S = 120.0
QUERY_TIMEOUT_S = 240.0
WAIT_TIMEOUT_S = 180.0
POLL_S = 0.05
STARTS_MAX = 5
# The order in which a topic's rows are compared.
PLACE = ("topic", "partition", "offset")
# Where Kafka's Java producer puts a key; librdkafka's own choice is another one.
JAVA_PARTITIONER = {"partitioner": "murmur2_random"}


class Record(NamedTuple):
    """One record to produce; without a partition the key decides, as in Kafka's Java producer."""

    value: bytes | None = b"value"
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def produce(
    bootstrap: str,
    topic: str,
    records: Iterable[Record | bytes],
    *,
    codec: str = "none",
    **settings: Any,
) -> None:
    """Return once all records are acknowledged; plain bytes are records with that value."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    base = {
        "bootstrap.servers": bootstrap,
        "compression.type": codec,
        "linger.ms": 20,
        # A batch that must be sent again would come behind those that were sent after it.
        "max.in.flight": 1,
    }
    producer = Producer(base | JAVA_PARTITIONER | named)
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    for each in records:
        record = Record(each) if isinstance(each, bytes) else each
        place: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        while True:
            try:
                producer.produce(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    timestamp=record.timestamp_ms or 0,
                    on_delivery=on_delivery,
                    **place,
                )
                break
            except BufferError:
                producer.poll(1.0)
    assert producer.flush(DELIVERY_TIMEOUT_S) == 0
    assert failed == [], failed[:3]


def rows(frame: DataFrame) -> list[Row]:
    """All rows, in the order of topic, partition and offset as far as the frame has them."""
    order = [name for name in PLACE if name in frame.columns]
    found = frame.collect()
    return sorted(found, key=lambda row: tuple(row[name] for name in order)) if order else found


class Output:
    """A folder that a streaming query writes to, with its checkpoint: both outlive the query."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = folder / "checkpoint"
        self.parquet = folder / "parquet"

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        """`trigger` as DataStreamWriter.trigger takes it; none of it is Spark's default one."""
        writer = frame.writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        if trigger:
            writer = writer.trigger(**trigger)
        return started(lambda: writer.start(str(self.parquet)))

    def rows(self, frame: DataFrame) -> list[Row]:
        """All that the queries have written, whose session and schema are those of `frame`."""
        if not self.parquet.exists():
            return []
        return rows(frame.sparkSession.read.schema(frame.schema).parquet(str(self.parquet)))


def run_available_now(frame: DataFrame, folder: Path) -> list[Row]:
    """Run a stream to the end as of now: everything in the output, earlier runs' rows included."""
    output = Output(folder)
    finish(output.start(frame, availableNow=True))
    return output.rows(frame)


def started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query that has its sources, or has ended.

    Spark gives the Python process of a source ten seconds to start, which no setting changes and
    which a busy machine may exceed. Nothing has been planned by then, so it is started again.
    """
    for _ in range(STARTS_MAX):
        query = start()
        wait_until("a query with its sources", partial(_is_past_its_start, query))
        if NO_PYTHON not in str(query.exception()):
            break
    return query


def _is_past_its_start(query: StreamingQuery) -> bool:
    return not query.isActive or query.status["message"] != INITIALISING


def finish(query: StreamingQuery, timeout_s: float = QUERY_TIMEOUT_S) -> None:
    """Wait for a query that ends by itself; its failure is the test's."""
    if not query.awaitTermination(int(timeout_s)):
        query.stop()
        raise AssertionError(f"the query did not end in {timeout_s} s: {query.lastProgress}")


def wait_for_query(
    query: StreamingQuery,
    what: str,
    condition: Callable[[], bool],
    timeout_s: float = WAIT_TIMEOUT_S,
) -> None:
    """Wait for what a running query brings about; if the query fails, so does the test, at once."""

    def reached() -> bool:
        error = query.exception()
        assert error is None, error
        return condition()

    wait_until(what, reached, timeout_s)


def last_line(error: BaseException) -> str:
    """The last line of the Python traceback inside an exception of Spark's."""
    text = str(error)
    lines = [line for line in text.splitlines() if line.strip()]
    traceback = next((n for n, line in enumerate(lines) if "Traceback (most recent" in line), None)
    if traceback is None:
        return lines[-1]
    inside = lines[traceback + 1 :]
    found = lines[traceback]
    for line in inside:
        if line.startswith(("\tat ", "JVM stacktrace", "Caused by:", "Driver stacktrace")):
            break
        found = line
    return found.strip()
