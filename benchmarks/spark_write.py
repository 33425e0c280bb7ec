"""Writing a topic from Parquet, against the JVM connector."""

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from benchmarks.figures import Figure, Note
from benchmarks.modes import Mode
from benchmarks.page_cache import warm
from benchmarks.spark_rig import OURS, SparkRig
from benchmarks.spark_rounds import BEATS_CONNECTOR, Sample, figures, take_turns
from benchmarks.spark_topics import count_records, delete_topic, make_topic

PARTITIONS = 4
# The Parquet file, and topics that come and go.
WARM_FACTOR = 4


@dataclass(slots=True, kw_only=True)
class Writing:
    """The rows to write, and a topic of its own for each run."""

    bootstrap: str
    path: Path
    records: int
    value_bytes: int
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def once(self, rig: SparkRig, sink: str) -> Sample:
        topic = f"write-{self.value_bytes}-{next(self.numbers)}"
        make_topic(self.bootstrap, topic, PARTITIONS)
        options = {"kafka.bootstrap.servers": self.bootstrap, "topic": topic}
        spark = rig.spark(sink)
        outcome = spark.ask("write", path=str(self.path), sink=sink, options=options)
        written = count_records(self.bootstrap, topic, PARTITIONS)
        assert written == self.records, f"{sink} wrote {written} of {self.records} records"
        delete_topic(self.bootstrap, topic)
        return Sample(
            rate=written / outcome["seconds"], cpu_us=1e6 * outcome["cpu_seconds"] / written
        )


def run(mode: Mode, folder: Path, rig: SparkRig) -> Iterator[Figure | Note]:
    sizes = [
        (100, "100 B", mode.spark_writes_of_100_bytes),
        (1_000, "1 KB", mode.spark_writes_of_1_kilobyte),
    ]
    warm(folder, WARM_FACTOR * sum(size * count for size, _, count in sizes))
    promises = [BEATS_CONNECTOR] if rig.connector else []
    contenders = [OURS, *(promise.contender for promise in promises)]
    yield rig.note()
    with rig.broker(folder) as broker:
        for size, label, count in sizes:
            path = folder / f"rows-{size}.parquet"
            make_rows(path, count, size)
            writing = Writing(
                bootstrap=broker.bootstrap, path=path, records=count, value_bytes=size
            )

            def write(sink: str, writing: Writing = writing) -> Sample:
                return writing.once(rig, sink)

            take_turns(contenders, mode.spark_warm_up_rounds, write)
            rounds = take_turns(contenders, mode.spark_rounds, write)
            yield from figures(f"Spark write, {label}", rounds, promises, size)


def make_rows(path: Path, count: int, value_bytes: int) -> None:
    """Keys that differ, and values that differ and don't compress."""
    chunk = min(count, 50_000)
    noise = os.urandom(value_bytes + chunk)
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])
    values = pa.array([noise[number : number + value_bytes] for number in range(chunk)])
    with parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
        for first in range(0, count, chunk):
            rows = min(chunk, count - first)
            keys = pa.array([b"key-%d" % number for number in range(first, first + rows)])
            file.write_table(pa.table([keys, values[:rows]], schema=schema))
