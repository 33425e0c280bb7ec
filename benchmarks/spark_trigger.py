"""A warm trigger that reads one record, against a Python source that returns a constant row."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Note, median
from benchmarks.modes import Mode
from benchmarks.spark_rig import JVM, OURS, SparkRig
from benchmarks.spark_topics import fill_topic

WORKLOAD = "Spark one-record trigger"
CONSTANT = "constant_row"
TOPIC = "triggers"
LABELS = {OURS: "median", CONSTANT: "constant row, median", JVM: "JVM connector, median"}
AT_MOST = 1.3


def run(mode: Mode, folder: Path, rig: SparkRig) -> Iterator[Figure | Note]:
    """The topic holds more records than triggers take, so each trigger finds exactly one."""
    contenders = [OURS, CONSTANT, *([JVM] if rig.connector else [])]
    needed = mode.spark_triggers_warm + mode.spark_triggers
    yield rig.note()
    with rig.broker(folder) as broker:
        # A record per batch, as records come that trigger each on its own.
        fill_topic(
            broker.bootstrap,
            TOPIC,
            partitions=1,
            records=4 * needed,
            value_bytes=100,
            batch_bytes=1,
        )
        options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "1",
        }
        rounds = []
        for number in range(mode.spark_rounds):
            order = contenders if number % 2 == 0 else list(reversed(contenders))
            rounds.append({source: triggers(mode, rig, source, options) for source in order})
    for source in contenders:
        value = median([one[source] for one in rounds])
        yield Figure(workload=WORKLOAD, name=LABELS[source], value=value, unit="ms")
    ratios = [one[OURS] / one[CONSTANT] for one in rounds]
    name = "time / constant row"
    yield Figure(workload=WORKLOAD, name=name, value=median(ratios), unit="", at_most=AT_MOST)
    yield Figure(workload=WORKLOAD, name=f"{name}, worst round", value=max(ratios), unit="")


def triggers(mode: Mode, rig: SparkRig, source: str, options: dict[str, str]) -> float:
    """The median in milliseconds."""
    outcome = rig.spark(source).ask(
        "triggers",
        source=source,
        options={} if source == CONSTANT else options,
        warm=mode.spark_triggers_warm,
        count=mode.spark_triggers,
    )
    return median([duration["triggerExecution"] for duration in outcome["durations_ms"]])
