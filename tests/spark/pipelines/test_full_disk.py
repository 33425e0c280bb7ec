"""A full disk under a pipeline or an archive: told in a sentence, and nothing comes of it.

The disks are real and small. Whatever was being written when there was no more room, no part of it
is in a table, and once there is room again the same command goes on from where it was.
"""

import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipelines.archives.replay_note import notes
from penstock.pipelines.lakes.lake_table import LakeTable
from penstock.pipelines.lakes.opening import keeps_partition_columns, open_table
from penstock.pipelines.running.failures import sentence_of_query
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.progress import ProgressLog
from penstock.pipelines.running.queries import start_query
from penstock.pipelines.running.refusals import RunRefused
from penstock.pipelines.running.run_record import RunState, last_run
from penstock.pipelines.running.runner import run_pipeline
from penstock.pipelines.running.storage import Storage
from penstock.pipelines.sinks.lake_sink import LakeWriter
from penstock.pipelines.specification.model import LakeFormat, Pipeline
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker, command
from tests.spark.conftest import Produce
from tests.spark.pipelines.archive_rig import archive, replay, verify
from tests.spark.pipelines.blocking_lakes import rows_of_files
from tests.spark.pipelines.running_rig import (
    AVERAGES,
    BEGIN,
    GatheringGate,
    good_numbers,
    numbers_in,
    read,
    readings,
    write_specification,
)
from tests.spark.pipelines.test_killed_runs import environment
from tests.spark.pipelines.test_lake_sinks import files_of, plain, read_table, write_rows
from tests.spark.rig import Record
from tests.spark.topic_contents import stored
from tests.unit.pipelines.small_disk import PAGE, SmallDisk, small_disk
from tests.waiting import wait_until

GOES_ON = "is full: free some space and run the same command again. It continues where it was."
ROWS_PER_BATCH = 20
FAILING_BATCH = 1
# Of the pipeline's averages.
WINDOW = timedelta(seconds=10)
LINES_MAX = 100
TELLING_TIMEOUT_S = 120.0
# Three epochs of this fit on the disk, with all that goes with them, and a fourth by far does not.
RECORD_BYTES = 1_100
COMMAND_TIMEOUT_S = 240.0


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[dict[LakeFormat, SmallDisk]]:
    """One for each format, so that each is full at its own time."""
    with ExitStack() as mounts:
        yield {
            each: mounts.enter_context(small_disk(tmp_path / "disks" / each)) for each in LakeFormat
        }


class Flow:
    """Rows into a table on a small disk, which is full once the second batch has been written."""

    def __init__(self, lake_format: LakeFormat, disk: SmallDisk, folder: Path) -> None:
        self.format = lake_format
        self.table: LakeTable = open_table(lake_format, str(disk.path / "lake"))
        self._disk = disk
        self._checkpoint = folder / "checkpoints" / lake_format
        self._raised: Exception | None = None
        self._query: StreamingQuery | None = None
        self._written = 0

    def start(self, frame: DataFrame, *, fills: bool) -> None:
        self._raised = None
        sink = LakeWriter(
            self.table,
            ["sensor"],
            keeps_partition_columns=keeps_partition_columns(self.format),
            steps=self._fill if fills else lambda step: None,
        )
        self._query = start_query(
            frame,
            sink,
            pipeline="lakes",
            flow=str(self.format),
            checkpoint=self._checkpoint,
            interval=None,
            once=True,
            mode="append",
            gate=StopGate(),
            on_written=lambda epoch, written: None,
            on_failed=self._fail,
        )

    def failure(self) -> str | None:
        """Once it has ended."""
        assert self._query is not None
        try:
            self._query.awaitTermination()
        except Exception as error:
            return sentence_of_query(self._raised or error, self._checkpoint)
        return None

    def _fill(self, step: str) -> None:
        if step == "written" and self._written == FAILING_BATCH:
            self._disk.fill()
        self._written += step == "written"

    def _fail(self, error: Exception) -> None:
        self._raised = error


@pytest.mark.slow
def test_a_full_disk_under_tables_of_each_format(
    spark: SparkSession, tmp_path: Path, disks: dict[LakeFormat, SmallDisk]
) -> None:
    expected = write_rows(tmp_path)
    frame = rows_of_files(spark, tmp_path)
    flows = [Flow(each, disk, tmp_path) for each, disk in disks.items()]

    def run(*, fills: bool = False) -> list[str | None]:
        for flow in flows:
            flow.start(frame, fills=fills)
        return [flow.failure() for flow in flows]

    def check(count: int) -> None:
        for flow in flows:
            rows = read_table(flow.format, flow.table).to_pylist()
            assert plain(rows) == plain(expected[:count]), flow.format
            assert files_of(flow.table) == set(flow.table.paths()), "nothing is left of attempts"

    full = [f"The disk of the table '{flow.table.root}' {GOES_ON}" for flow in flows]
    # The driver has no room to commit what the tasks have written.
    assert run(fills=True) == full
    check(ROWS_PER_BATCH)
    # The tasks have no room to write.
    assert run() == full
    check(ROWS_PER_BATCH)
    for disk in disks.values():
        disk.free()
    assert run() == [None, None, None]
    check(len(expected))


class FullDiskGate(GatheringGate):
    """Fills the disk when each flow is in its second batch, and lets one of them fail first.

    That one is in the middle of a batch, so Spark is who finds no room: whatever else is to be kept
    of the first batches is kept by then.
    """

    def __init__(self, pipeline: Pipeline, disk: SmallDisk, *, fails: str) -> None:
        super().__init__(len(pipeline.flows), 1, self._fill)
        self._logs = [
            ProgressLog(Storage(Path(pipeline.storage)).flow(name).progress)
            for name in pipeline.flows
        ]
        self._lines_before = [len(log.last(LINES_MAX)) for log in self._logs]
        self._disk = disk
        self._fails = fails

    def _fill(self, _: GatheringGate) -> None:
        wait_until("the progress of the first batches", self._is_told, TELLING_TIMEOUT_S)
        self._disk.fill(PAGE)

    def _is_told(self) -> bool:
        lines = [len(log.last(LINES_MAX)) for log in self._logs]
        return all(now > before for now, before in zip(lines, self._lines_before, strict=True))

    def gathered(self, flow: str) -> None:
        if flow != self._fails:
            wait_until("the end of the other flow", lambda: self.is_requested, TELLING_TIMEOUT_S)


@pytest.mark.slow
def test_a_full_disk_under_what_a_pipeline_keeps(
    spark: SparkSession,
    broker: Broker,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    path, topic = write_specification(tmp_path, AVERAGES), make_topic(partitions=1)
    pipeline = read(path, broker.bootstrap, topic)
    storage, table = Storage(Path(pipeline.storage)), tmp_path / "lake" / "raw"
    folder = re.escape(str(storage.path))
    # The first to find no room is named: Spark under a flow, or the run that keeps its books.
    flow = (
        rf"The flow (raw|averages) failed: The disk of the checkpoint {folder}/flows/\2/checkpoint"
    )
    place = rf"({flow}|The disk of the storage {folder})"
    said = []
    with small_disk(storage.path) as disk:

        def run(**given: Any) -> None:
            with pytest.raises(RunRefused) as refused:
                run_pipeline(pipeline, once=True, spark=spark, **given)
            said.append(str(refused.value))
            disk.free()

        produce(topic, readings(0, 100))
        # Nothing can be kept, then Spark can't make a checkpoint, and then it can't plan a batch.
        for pages in (0, 4, 3):
            disk.fill(pages * PAGE)
            run()
        # In the middle of a run: what is read, written and kept in state is noted nowhere.
        for number, name in enumerate(("averages", "raw"), start=1):
            produce(topic, readings(100 * number, 100))
            run(gate=FullDiskGate(pipeline, disk, fails=name))
            checkpoint = storage.flow(name).checkpoint
            full = f"The flow {name} failed: The disk of the checkpoint {checkpoint} {GOES_ON}"
            assert said[-1] == full
            assert len(numbers_in(table)) == len(set(numbers_in(table)))
        run_pipeline(pipeline, once=True, spark=spark)
        ended = last_run(storage)
    for sentence in said:
        assert re.fullmatch(f"{place} {GOES_ON}", sentence)
    assert said[0] == f"The disk of the storage {storage.path} {GOES_ON}"
    assert numbers_in(table) == good_numbers(300)
    averages = open_table(LakeFormat.PARQUET, str(tmp_path / "lake" / "averages"))
    rows = read_table(LakeFormat.PARQUET, averages).to_pylist()
    assert sorted(row["start"] for row in rows) == [BEGIN, BEGIN + WINDOW]
    assert ended is not None
    assert ended.state is RunState.ENDED


@pytest.mark.soak
@pytest.mark.timeout(800)
def test_a_full_disk_under_an_archive_and_a_replay(
    spark: SparkSession,
    java_home: Path,
    broker: Broker,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    topic, back = make_topic(partitions=2), f"back-{uuid.uuid4().hex[:8]}"
    # More than the disk takes, in epochs of which some fit. Each is written by one task: when two
    # write, one may have no room and the other, which nobody waits for, still leave its file.
    produce(topic, [Record(os.urandom(RECORD_BYTES), partition=0) for _ in range(10_000)])
    root = tmp_path / "disk" / "archive"

    def penstock(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            command(*arguments, "--bootstrap", broker.bootstrap, "--master", "local[2]"),
            cwd=tmp_path,
            env=environment(java_home),
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        return done.returncode, done.stdout, done.stderr

    full = (1, "", f"penstock: The disk of the archive {root} {GOES_ON}\n")
    with small_disk(root.parent) as disk:
        # Filled by the data itself, by a command that would go on forever.
        limits = ["--every", "100 milliseconds", "--offsets-max", "2000"]
        assert penstock("archive", topic, "--to", str(root), *limits) == full
        before = verify(root)
        assert before.findings == ()
        assert before.rows == 6_000
        assert sorted(files_below(root)) == sorted(in_table(root)), "nothing is left of attempts"

        disk.enlarge("64m")
        archive(spark, broker.bootstrap, topic, root, offsets_per_batch_max=2000)
        verdict = verify(root)
        assert (verdict.findings, verdict.rows) == ((), 10_000)

        disk.fill()
        assert penstock("replay", str(root), "--to", back) == full
        assert list(notes(root)) == []
        disk.free()
        assert replay(spark, broker.bootstrap, root, back) == (10_000, False)
    assert stored(broker.bootstrap, back) == stored(broker.bootstrap, topic)


def files_below(root: Path) -> list[str]:
    return [str(path) for path in (root / "data").rglob("*.parquet")]


def in_table(root: Path) -> list[str]:
    return open_table(LakeFormat.PARQUET, str(root)).paths()
