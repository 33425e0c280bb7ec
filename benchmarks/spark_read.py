"""Reading a topic to noop, batch and stream, against ready-made batches and the JVM connector."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, Note
from benchmarks.modes import Mode
from benchmarks.page_cache import warm
from benchmarks.spark_rig import OURS, SparkRig
from benchmarks.spark_rounds import BEATS_CONNECTOR, Promise, Sample, figures, take_turns
from benchmarks.spark_topics import KEY, delete_topic, fill_topic
from penstock.columns.decoding import BYTES_MAX, ROWS_MAX

IN_MEMORY = "ready_made"
PARTITIONS = 2
COMMANDS = {"read_stream": "stream", "read_batch": "batch"}
IN_MEMORY_SHARE = Promise(contender=IN_MEMORY, label="in-memory source", at_least=0.6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One topic and the options under which each contender reads as much."""

    bootstrap: str
    topic: str
    records: int
    value_bytes: int

    @property
    def rows(self) -> int:
        """Of the Arrow batches that our source makes of such records."""
        return min(ROWS_MAX, BYTES_MAX // (KEY.size + self.value_bytes))

    def options(self, source: str) -> dict[str, str]:
        if source == IN_MEMORY:
            return {
                "records": str(self.records),
                "partitions": str(PARTITIONS),
                "rows": str(self.rows),
                "valueBytes": str(self.value_bytes),
            }
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
        }


def run(mode: Mode, folder: Path, rig: SparkRig) -> Iterator[Figure | Note]:
    sizes = [
        (100, "100 B", mode.spark_records_of_100_bytes),
        (1_000, "1 KB", mode.spark_records_of_1_kilobyte),
    ]
    warm(folder, sum(size * count for size, _, count in sizes))
    promises = [IN_MEMORY_SHARE, *([BEATS_CONNECTOR] if rig.connector else [])]
    yield rig.note()
    with rig.broker(folder) as broker:
        for size, label, count in sizes:
            topic = f"read-{size}"
            records = fill_topic(
                broker.bootstrap, topic, partitions=PARTITIONS, records=count, value_bytes=size
            )
            reading = Reading(
                bootstrap=broker.bootstrap, topic=topic, records=records, value_bytes=size
            )
            yield from measure(rig, mode, reading, promises, label)
            delete_topic(broker.bootstrap, topic)


def measure(
    rig: SparkRig, mode: Mode, reading: Reading, promises: list[Promise], label: str
) -> Iterator[Figure]:
    contenders = [OURS, *(promise.contender for promise in promises)]
    for command, kind in COMMANDS.items():

        def read(source: str, command: str = command) -> Sample:
            return read_once(rig, command, source, reading)

        take_turns(contenders, mode.spark_warm_up_rounds, read)
        rounds = take_turns(contenders, mode.spark_rounds, read)
        yield from figures(f"Spark {kind} read, {label}", rounds, promises, reading.value_bytes)


def read_once(rig: SparkRig, command: str, source: str, reading: Reading) -> Sample:
    outcome = rig.spark(source).ask(command, source=source, options=reading.options(source))
    rows = outcome.get("rows", reading.records)
    assert rows == reading.records, f"{source} read {rows} of {reading.records} records"
    return Sample(rate=rows / outcome["seconds"], cpu_us=1e6 * outcome["cpu_seconds"] / rows)
