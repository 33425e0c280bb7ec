"""A program that reads and writes topics in four ways at once, each to its end.

All four stop in the middle of their work until there is a file, and then go on: with tasks under
way, and with tasks and micro-batches that only begin then.

Run by test_outage.py in a process of its own, whose broker goes away meanwhile. Arguments: the
bootstrap, the topic, the topic that a query copies it to, the folder of an archive that grows, the
folder of one that is made first and brought back, the topic it goes to, the file of a pipeline,
and the file that all wait for.
"""

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock.spark
from penstock.cli.pipeline.screen import PlainScreen
from penstock.pipelines.archives import replay_task
from penstock.pipelines.archives.archived_rows import Stretch, archived_rows
from penstock.pipelines.archives.replay_task import Outcome, PartitionReplay
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.runner import run_pipeline
from tests.spark.pipelines.archive_rig import archive, replay
from tests.spark.pipelines.running_rig import read
from tests.spark.rig import finish, started
from tests.waiting import wait_until

OFFSETS_PER_BATCH_MAX = 1_000
# What each has done before it waits. Of each partition a batch takes half of what is its share.
EPOCHS_BEFORE = BATCHES_BEFORE = 2
OFFSET_HELD = 1_000
ROWS_HELD = 500
HELD_S_MAX = 400.0


def hold(go_on: Path) -> None:
    wait_until("the file to go on", go_on.exists, HELD_S_MAX)


def replay_in_two_parts(wanted: PartitionReplay, go_on: Path) -> Outcome:
    def in_two_parts(stretch: Stretch) -> Iterator[pa.RecordBatch]:
        for batch in archived_rows(stretch):
            yield batch.slice(0, ROWS_HELD)
            hold(go_on)
            yield batch.slice(ROWS_HELD)

    replay_task.archived_rows = in_two_parts
    return replay_task.run_replay(wanted)


class Epochs:
    """Waits after some that are committed."""

    def __init__(self, go_on: Path) -> None:
        self._committed = 0
        self._go_on = go_on

    def __call__(self, step: str) -> None:
        self._committed += step == "committed"
        if self._committed == EPOCHS_BEFORE:
            hold(self._go_on)


class HoldingGate(StopGate):
    """Waits within a batch, before its tasks begin."""

    def __init__(self, go_on: Path) -> None:
        super().__init__()
        self._go_on = go_on

    @contextmanager
    def batch(self, flow: str, batch: int) -> Iterator[None]:
        with super().batch(flow, batch):
            if batch == BATCHES_BEFORE:
                hold(self._go_on)
            yield


def copy(
    spark: SparkSession, bootstrap: str, topic: str, target: str, checkpoint: Path, go_on: Path
) -> StreamingQuery:
    def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deadline = time.monotonic() + HELD_S_MAX
        for batch in batches:
            while pc.max(batch["offset"]).as_py() >= OFFSET_HELD and not go_on.exists():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield batch

    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    reader = reader.option("maxOffsetsPerTrigger", OFFSETS_PER_BATCH_MAX)
    frame = reader.option("commitGroup", "copy").load().select("partition", "offset", "value")
    rows = frame.mapInArrow(held, frame.schema).select("partition", "value")
    writer = rows.writeStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", target).option("checkpointLocation", str(checkpoint))
    return started(writer.trigger(availableNow=True).start)


def main(
    bootstrap: str,
    topic: str,
    copied: str,
    growing: str,
    whole: str,
    target: str,
    file: str,
    go_on: str,
) -> None:
    spark = penstock.spark.session(
        "outage",
        master="local[8]",
        settings={"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"},
    )
    path, flag = Path(file), Path(go_on)
    archive(spark, bootstrap, topic, Path(whole))
    # In other threads than the first, Spark does not know the sinks of its session by name.
    query = copy(spark, bootstrap, topic, copied, path.with_name("checkpoint"), flag)
    work: list[Callable[[], object]] = [
        partial(finish, query),
        partial(
            archive,
            spark,
            bootstrap,
            topic,
            Path(growing),
            steps=Epochs(flag),
            offsets_per_batch_max=OFFSETS_PER_BATCH_MAX,
        ),
        partial(
            replay,
            spark,
            bootstrap,
            Path(whole),
            target,
            task=partial(replay_in_two_parts, go_on=flag),
        ),
        partial(
            run_pipeline,
            read(path, bootstrap, topic),
            once=True,
            gate=HoldingGate(flag),
            watcher=PlainScreen(),
            spark=spark,
        ),
    ]
    with ThreadPoolExecutor(len(work)) as pool:
        for done in [pool.submit(each) for each in work]:
            done.result()


if __name__ == "__main__":
    main(*sys.argv[1:])
