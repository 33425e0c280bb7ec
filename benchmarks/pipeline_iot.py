"""The IoT pipeline against the same queries written by hand, over a topic that is full already."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.figures import Figure, Note
from benchmarks.modes import Mode
from benchmarks.spark_rig import OURS, SparkProcess, SparkRig
from benchmarks.spark_rounds import Promise, Sample, figures, take_turns
from benchmarks.spark_topics import make_topic
from penstock.client.child_broker import ChildBroker
from penstock.client.producer import Producer

WORKLOAD = "IoT pipeline"
MODULE = "benchmarks.pipeline_process"
PARTITIONS = 4
SENSORS = 24
# Half an hour of readings or so, in windows of ten seconds.
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
EVERY = timedelta(milliseconds=5)
WRONG_SHARE = 0.001
BY_HAND = "by_hand"
COMMANDS = {OURS: "by_pipeline", BY_HAND: "by_hand"}
HAND_SHARE = Promise(contender=BY_HAND, label="query by hand", at_least=0.7)


def run(mode: Mode, folder: Path, rig: SparkRig) -> Iterator[Figure | Note]:
    yield Note(
        topic=WORKLOAD,
        text="Spark as local[2], five queries at once; broker and Spark share all cores",
    )
    with rig.broker(folder, anywhere=True) as broker, rig.process(MODULE, "pipeline") as spark:
        for topic, partitions in {"readings": PARTITIONS, "alerts": 2, "readings-dead": 1}.items():
            make_topic(broker.bootstrap, topic, partitions)
        value_bytes = fill(broker.bootstrap, mode.pipeline_readings)
        turns = Turns(spark, broker, folder, mode.pipeline_readings)
        take_turns(list(COMMANDS), mode.pipeline_warm_up_rounds, turns.run)
        rounds = take_turns(list(COMMANDS), mode.pipeline_rounds, turns.run)
        yield from figures(WORKLOAD, rounds, [HAND_SHARE], value_bytes)


class Turns:
    """Each run has a lake and checkpoints of its own."""

    def __init__(
        self, spark: SparkProcess, broker: ChildBroker, folder: Path, readings: int
    ) -> None:
        self._spark = spark
        self._broker = broker
        self._folder = folder
        self._readings = readings
        self._windows: set[int] = set()
        self._count = 0

    def run(self, contender: str) -> Sample:
        self._count += 1
        lake = self._folder / f"lake-{self._count}"
        outcome = self._spark.ask(
            COMMANDS[contender], bootstrap=self._broker.bootstrap, folder=str(lake)
        )
        assert outcome["readings"] == self._readings, f"{contender}: {outcome}"
        self._windows.add(outcome["windows"])
        assert len(self._windows) == 1, f"the contenders disagree on windows: {self._windows}"
        return Sample(
            rate=self._readings / outcome["seconds"],
            cpu_us=1e6 * outcome["cpu_seconds"] / self._readings,
        )


def fill(bootstrap: str, readings: int) -> int:
    """Returns how many bytes a reading has, about."""
    size = 0
    with Producer(bootstrap, compression="lz4", linger_ms=20) as producer:
        for place in range(readings):
            sensor = f"sensor-{place % SENSORS:02}"
            wrong = 25 if random.random() < WRONG_SHARE else 0
            reading = {
                "sensor": sensor,
                "number": place // SENSORS,
                "temperature": round(random.gauss(20, 0.3) + wrong, 2),
                "at": (BEGIN + place * EVERY).isoformat(timespec="milliseconds"),
            }
            value = json.dumps(reading).encode()
            size += len(value)
            producer.send("readings", value, key=sensor.encode())
    return size // readings
