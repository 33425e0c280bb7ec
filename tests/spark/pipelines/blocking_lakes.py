"""A program: flows into tables of each format, that stop forever in their second batch.

Run by test_lake_sinks.py, which kills it. Half of the flows stop between write and commit, the
others after the commit, of tasks that failed once when they had written their files. Argument: a
folder.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pyarrow import RecordBatch
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.pipelines.lakes import executor_writing
from penstock.pipelines.lakes.opening import keeps_partition_columns, open_table
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.queries import start_query
from penstock.pipelines.sinks.lake_sink import LakeWriter
from penstock.pipelines.specification.model import LakeFormat

SCHEMA = "id BIGINT, sensor STRING, nested STRUCT<at: TIMESTAMP, parts: ARRAY<MAP<STRING, DOUBLE>>>"
POINTS = ("written", "committed")
FLOWS = [(lake_format, point) for lake_format in LakeFormat for point in POINTS]
STOPPING_BATCH = 1


def flow_name(lake_format: LakeFormat, point: str) -> str:
    return f"{lake_format}_{point}"


def start_flow(
    frame: DataFrame,
    folder: Path,
    lake_format: LakeFormat,
    point: str,
    steps: Callable[[str], None],
    on_written: Callable[..., None] = lambda *_: None,
) -> StreamingQuery:
    name = flow_name(lake_format, point)
    sink = LakeWriter(
        open_table(lake_format, str(folder / "lake" / name)),
        ["sensor"],
        keeps_partition_columns=keeps_partition_columns(lake_format),
        steps=steps,
    )
    return start_query(
        frame,
        sink,
        pipeline="lakes",
        flow=name,
        checkpoint=folder / "checkpoints" / name,
        interval=None,
        once=True,
        mode="append",
        gate=StopGate(),
        on_written=on_written,
    )


def rows_of_files(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.json(str(folder / "rows"))


def _is_failing(root: str, folder: str) -> bool:
    """Once for each format: in a batch that is committed, so that what is left can be looked at."""
    return root.endswith("_committed") and Path(folder).name.startswith(f"{STOPPING_BATCH}-")


class Stopping:
    """Lets the first batches pass, and never returns from the one that is to be killed."""

    def __init__(self, point: str, note: Path) -> None:
        self._point = point
        self._note = note
        self._calls = 0

    def __call__(self, step: str) -> None:
        if step != self._point:
            return
        if self._calls == STOPPING_BATCH:
            self._note.touch()
            threading.Event().wait()
        self._calls += 1


def main(folder: Path) -> None:
    class FailingTask(executor_writing.WritingTask):
        """Its files are there, and its receipts are on their way, when it fails."""

        def __call__(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
            yield from super().__call__(batches)
            context = TaskContext.get()
            assert context is not None
            if context.attemptNumber() == 0 and _is_failing(self.root, self.folder):
                raise RuntimeError("the first attempt fails at its end")

    executor_writing.WritingTask = FailingTask  # type: ignore[misc]
    spark = (
        SparkSession.builder.master("local[2, 2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    frame = rows_of_files(spark, folder)
    queries = [
        start_flow(
            frame,
            folder,
            lake_format,
            point,
            Stopping(point, folder / flow_name(lake_format, point)),
        )
        for lake_format, point in FLOWS
    ]
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
