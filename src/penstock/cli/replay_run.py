"""One run of `penstock replay`: a session, a job, and a progress bar by the target's own ends."""

import threading
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from penstock.cli.interrupts import Interrupts
from penstock.cli.progress import progress
from penstock.cli.spark_options import OutageLines
from penstock.client.admin import Admin
from penstock.pipelines.archives.locking import only_one
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.archives.replay_note import FOLDER
from penstock.pipelines.archives.replay_target import target_topic
from penstock.pipelines.archives.replaying import Archived, Replaying, ReplayWanted
from penstock.pipelines.lakes.full_disk import full_disk_explained
from penstock.pipelines.running.broker_watch import BrokerWatch
from penstock.pipelines.running.failures import sentence_of
from penstock.pipelines.running.sessions import make_session
from penstock.pipelines.running.workers import check_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.5


def run_replay(
    wanted: ReplayWanted, topic: str, *, master: str | None, settings: Mapping[str, str]
) -> int:
    """How many records are back; a signal ends it at once, and the next run goes on."""
    archived = Archived(wanted.root)
    archived.check(wanted.selection)
    target = target_topic(Admin(wanted.bootstrap), topic, archived.description)
    lock = only_one(
        wanted.root / FOLDER / "lock",
        f"Another process is replaying the archive {wanted.root}.",
    )
    with (
        full_disk_explained(f"the archive {wanted.root}", ArchiveRefused, OSError),
        Interrupts() as interrupts,
        lock,
        closing(Replaying(wanted, archived, target)) as replay,
    ):
        spark = make_session(
            f"replay to {topic}",
            storage=wanted.root / FOLDER,
            master=master,
            # A second attempt beside the first would write everything twice.
            settings={**settings, "spark.speculation": "false"},
        )
        try:
            check_workers(spark)
            with BrokerWatch([wanted.bootstrap]) as watch:
                return _follow(replay, spark, topic, interrupts, OutageLines(watch))
        finally:
            spark.stop()


def _follow(
    replay: Replaying,
    spark: "SparkSession",
    topic: str,
    interrupts: Interrupts,
    outages: OutageLines,
) -> int:
    job = _Job(replay, spark)
    shown = 0
    with progress(f"replay to {topic}", replay.rows_max, shown=True) as advance:
        job.start()
        while job.is_alive():
            interrupts.check()
            job.join(POLL_S)
            outages.tell()
            written = replay.written()
            advance(written - shown)
            shown = written
    return job.result()


class _Job(threading.Thread):
    """Spark's job in a thread of its own, so that signals and the bar are served meanwhile."""

    def __init__(self, replay: Replaying, spark: "SparkSession") -> None:
        super().__init__(name="replay", daemon=True)
        self._replay = replay
        self._spark = spark
        self._records = 0
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._records = self._replay.run(self._spark)
        except BaseException as error:
            self._failure = error

    def result(self) -> int:
        if self._failure is not None:
            raise ArchiveRefused(sentence_of(self._failure)) from self._failure
        return self._records
