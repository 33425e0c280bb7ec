"""The memory of Spark's Python workers over one long stream: at its end as at its beginning."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Note, median
from benchmarks.modes import Mode
from benchmarks.spark_rig import OURS, SparkRig
from benchmarks.spark_topics import fill_topic

WORKLOAD = "Spark memory"
TOPIC = "memory"
PARTITIONS = 2
VALUE_BYTES = 100
# Allocators keep a little; records kept in memory would show as many times as much.
GROWTH_AT_MOST = 1.1

# By process id, which JSON has as text.
Megabytes = dict[str, float]


def run(mode: Mode, folder: Path, rig: SparkRig) -> Iterator[Figure | Note]:
    yield rig.note()
    with rig.broker(folder) as broker:
        records = fill_topic(
            broker.bootstrap,
            TOPIC,
            partitions=PARTITIONS,
            records=mode.spark_records_for_memory,
            value_bytes=VALUE_BYTES,
        )
        options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(-(-records // mode.spark_micro_batches)),
        }
        outcome = rig.spark(OURS).ask("memory", source=OURS, options=options)
    assert outcome["rows"] == records, f"{outcome['rows']} of {records} records were read"
    yield Figure(workload=WORKLOAD, name="records", value=records, unit="")
    yield from growth(outcome["megabytes"])


def growth(samples: list[Megabytes], workload: str = WORKLOAD) -> Iterator[Figure]:
    """Of the process that grew most, among those that were there all the time."""

    def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
        return Figure(workload=workload, name=name, value=value, unit=unit, at_most=at_most)

    part = max(1, len(samples) // 5)
    # The first fifth is left out: there the workers still load what they need.
    early, late = samples[part : 2 * part] or samples, samples[-part:]
    steady = set.intersection(*(set(sample) for sample in [*early, *late]))
    assert steady, "no Python process lived through the query"
    before = {pid: median([sample[pid] for sample in early]) for pid in steady}
    after = {pid: median([sample[pid] for sample in late]) for pid in steady}
    grown = max(steady, key=lambda pid: after[pid] / before[pid])
    yield figure("all Python processes, peak", max(sum(one.values()) for one in samples), "MB")
    yield figure("largest Python process, peak", max(max(one.values()) for one in samples), "MB")
    yield figure("process that grew most, second fifth", before[grown], "MB")
    yield figure("process that grew most, last fifth", after[grown], "MB")
    ratio = after[grown] / before[grown]
    yield figure("last fifth / second fifth", ratio, "", at_most=GROWTH_AT_MOST)
