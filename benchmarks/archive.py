"""Archiving a topic to Parquet against reading it to noop, and the memory that it takes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Note
from benchmarks.modes import Mode
from benchmarks.page_cache import warm
from benchmarks.spark_memory import growth
from benchmarks.spark_rig import OURS, SparkProcess, SparkRig
from benchmarks.spark_rounds import Promise, Sample, figures, take_turns
from benchmarks.spark_topics import fill_topic

WORKLOAD = "Archive, 100 B"
MEMORY_WORKLOAD = "Archive memory"
MODULE = "benchmarks.archive_process"
TOPIC = "archived"
PARTITIONS = 2
VALUE_BYTES = 100
# The topic, and an archive of it.
WARM_FACTOR = 3
OFFSETS_PER_EPOCH_MAX = 5_000_000
NOOP = "noop"
NOOP_SHARE = Promise(contender=NOOP, label="read to noop", at_least=0.5)


def run(mode: Mode, folder: Path, rig: SparkRig) -> Iterator[Figure | Note]:
    yield Note(
        topic=WORKLOAD,
        text="Spark with two cores, or one in quick mode; broker and Spark share all cores",
    )
    warm(folder, WARM_FACTOR * VALUE_BYTES * mode.archive_records)
    with rig.broker(folder, anywhere=True) as broker, rig.two_cores(MODULE, "archive") as spark:
        records = fill_topic(
            broker.bootstrap,
            TOPIC,
            partitions=PARTITIONS,
            records=mode.archive_records,
            value_bytes=VALUE_BYTES,
        )
        turns = Turns(spark, broker.bootstrap, folder, records)
        take_turns([OURS, NOOP], mode.spark_warm_up_rounds, turns.run)
        rounds = take_turns([OURS, NOOP], mode.spark_rounds, turns.run)
        yield from figures(WORKLOAD, rounds, [NOOP_SHARE], VALUE_BYTES)
        outcome = turns.archive(-(-records // mode.archive_epochs_for_memory))
        yield from growth(outcome["megabytes"], MEMORY_WORKLOAD)


class Turns:
    def __init__(self, spark: SparkProcess, bootstrap: str, folder: Path, records: int) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._archive = folder / "archive"
        self._records = records

    def run(self, contender: str) -> Sample:
        outcome = self.archive() if contender == OURS else self._read()
        assert outcome["rows"] == self._records, f"{contender} took {outcome['rows']} records"
        return Sample(
            rate=self._records / outcome["seconds"],
            cpu_us=1e6 * outcome["cpu_seconds"] / self._records,
        )

    def archive(self, offsets_max: int = OFFSETS_PER_EPOCH_MAX) -> dict[str, object]:
        """Each run makes a new one."""
        shutil.rmtree(self._archive, ignore_errors=True)
        return self._spark.ask(
            "archive",
            bootstrap=self._bootstrap,
            topic=TOPIC,
            folder=str(self._archive),
            offsets_max=offsets_max,
        )

    def _read(self) -> dict[str, object]:
        options = {
            "kafka.bootstrap.servers": self._bootstrap,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(OFFSETS_PER_EPOCH_MAX),
        }
        return self._spark.ask("read_stream", source=OURS, options=options)
