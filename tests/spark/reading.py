"""What tests of reads share: frames on a broker, the offsets in them, what a checkpoint holds."""

import itertools
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import DataFrame, SparkSession

from tests.spark.rig import Output, rows

ADMIN_TIMEOUT_S = 120.0


def batch(spark: SparkSession, bootstrap: str, **options: object) -> DataFrame:
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**options).load()


def stream(spark: SparkSession, bootstrap: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**options).load()


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    """Partition and offset of each row."""
    return [
        (row.partition, row.offset) for row in rows(frame.select("topic", "partition", "offset"))
    ]


class Admin:
    """What an operator does to topics while queries run."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def grow(self, topic: str, partitions: int) -> None:
        wanted = [NewPartitions(topic, partitions)]
        self._admin.create_partitions(wanted)[topic].result(ADMIN_TIMEOUT_S)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(ADMIN_TIMEOUT_S)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        place = TopicPartition(topic, partition, before)
        self._admin.delete_records([place])[place].result(ADMIN_TIMEOUT_S)


def forget_last_batch(output: Output) -> None:
    """Leave the checkpoint as a crash does that came before the last batch was finished."""
    commits = sorted((output.checkpoint / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    last = commits[-1]
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    if last.name == "0":
        shutil.rmtree(output.parquet, ignore_errors=True)


def planned_end(output: Output, batch_id: int = 0) -> dict[str, Any]:
    """The end of a batch as the checkpoint has it."""
    lines = (output.checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    return json.loads(lines[-1])


def change_planned_end(output: Output, end: dict[str, Any], batch_id: int = 0) -> None:
    path = output.checkpoint / "offsets" / str(batch_id)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], json.dumps(end)]))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


@contextmanager
def live_producer(bootstrap: str, topic: str, partitions: int) -> Iterator[None]:
    """Records keep coming, to all partitions in turn, while the block runs."""
    is_over = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})

    def run() -> None:
        for partition in itertools.cycle(range(partitions)):
            if is_over.wait(0.002):
                return
            producer.produce(topic, b"live", partition=partition)
            producer.poll(0)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        assert producer.flush(ADMIN_TIMEOUT_S) == 0


def last_line(error: BaseException) -> str:
    """The last line of the Python traceback inside an exception of Spark's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    begins = [n for n, line in enumerate(lines) if "Traceback (most recent" in line]
    found = ""
    for line in lines[begins[0] + 1 :]:
        if line.startswith(("at ", "JVM stacktrace", "Caused by:", "SQLSTATE:", "=== ")):
            break
        found = line
    return found.split(" SQLSTATE:")[0]
