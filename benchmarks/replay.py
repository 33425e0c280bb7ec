"""Bringing an archive back into a topic, against writing the same rows by the data source."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from benchmarks.archive import MODULE, OFFSETS_PER_EPOCH_MAX
from benchmarks.figures import Figure, Note
from benchmarks.modes import Mode
from benchmarks.page_cache import warm
from benchmarks.spark_rig import OURS, SparkProcess, SparkRig
from benchmarks.spark_rounds import Promise, Sample, figures, take_turns
from benchmarks.spark_topics import count_records, delete_topic, fill_topic, make_topic

WORKLOAD = "Replay, 100 B"
TOPIC = "replayed"
PARTITIONS = 4
VALUE_BYTES = 100
# The topic, its archive, and topics that come and go.
WARM_FACTOR = 4
WRITE = "write"
WRITE_SHARE = Promise(contender=WRITE, label="data source's write", at_least=0.5)


def run(mode: Mode, folder: Path, rig: SparkRig) -> Iterator[Figure | Note]:
    yield Note(
        topic=WORKLOAD,
        text="Spark with two cores, or one in quick mode; broker and Spark share all cores",
    )
    warm(folder, WARM_FACTOR * VALUE_BYTES * mode.replay_records)
    with rig.broker(folder, anywhere=True) as broker, rig.two_cores(MODULE, "replay") as spark:
        records = fill_topic(
            broker.bootstrap,
            TOPIC,
            partitions=PARTITIONS,
            records=mode.replay_records,
            value_bytes=VALUE_BYTES,
        )
        archive = folder / "archive"
        spark.ask(
            "archive",
            bootstrap=broker.bootstrap,
            topic=TOPIC,
            folder=str(archive),
            offsets_max=OFFSETS_PER_EPOCH_MAX,
        )
        turns = Turns(spark, broker.bootstrap, archive, records)
        take_turns([OURS, WRITE], mode.spark_warm_up_rounds, turns.run)
        rounds = take_turns([OURS, WRITE], mode.spark_rounds, turns.run)
        yield from figures(WORKLOAD, rounds, [WRITE_SHARE], VALUE_BYTES)


class Turns:
    """Each run has a topic of its own."""

    def __init__(self, spark: SparkProcess, bootstrap: str, archive: Path, records: int) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._archive = archive
        self._records = records
        self._numbers = itertools.count()

    def run(self, contender: str) -> Sample:
        topic = f"{TOPIC}-{next(self._numbers)}"
        make_topic(self._bootstrap, topic, PARTITIONS)
        outcome = self._replay(topic) if contender == OURS else self._write(topic)
        written = count_records(self._bootstrap, topic, PARTITIONS)
        assert written == self._records, f"{contender} wrote {written} of {self._records} records"
        delete_topic(self._bootstrap, topic)
        return Sample(
            rate=written / outcome["seconds"], cpu_us=1e6 * outcome["cpu_seconds"] / written
        )

    def _replay(self, topic: str) -> dict[str, float]:
        return self._spark.ask(
            "replay", bootstrap=self._bootstrap, topic=topic, folder=str(self._archive)
        )

    def _write(self, topic: str) -> dict[str, float]:
        options = {"kafka.bootstrap.servers": self._bootstrap, "topic": topic}
        return self._spark.ask("write_archived", folder=str(self._archive), options=options)
