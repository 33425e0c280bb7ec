"""One run of `penstock archive`: a session, a query, a progress bar, and an end after the batch."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.cli.interrupts import Interrupts
from penstock.cli.progress import progress
from penstock.cli.spark_options import OutageLines
from penstock.client.admin import Admin
from penstock.pipelines.archives.archiving import Archiving, Wanted
from penstock.pipelines.archives.description import FOLDER
from penstock.pipelines.archives.ledger import Entry
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.archives.topic_facts import topic_facts
from penstock.pipelines.lakes.full_disk import full_disk_explained
from penstock.pipelines.running.broker_watch import BrokerWatch
from penstock.pipelines.running.failures import sentence_of_query
from penstock.pipelines.running.sessions import make_session
from penstock.pipelines.running.stopping import is_stop, stop_after_batch
from penstock.pipelines.running.workers import check_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.1
# How the data source says it; here it is an option of the command.
_OPTION = "with the option failOnDataLoss=false the query would continue"
_FLAG = "with --allow-loss the archive would continue"


class ArchiveRun:
    def __init__(
        self, wanted: Wanted, topic: str, *, master: str | None, settings: Mapping[str, str]
    ) -> None:
        self._wanted = wanted
        self._topic = topic_facts(Admin(wanted.bootstrap), topic)
        self._master = master
        self._settings = settings
        self._entries: list[Entry] = []

    def run(self) -> list[Entry]:
        """The epochs that were archived; a signal ends the run after its batch, as if by itself."""
        archiving = Archiving(self._wanted, self._topic, archived=self._note)
        full_disk = full_disk_explained(f"the archive {self._wanted.root}", ArchiveRefused, OSError)
        with full_disk, Interrupts() as interrupts, archiving:
            spark = make_session(
                f"archive of {self._topic.name}",
                storage=self._wanted.root / FOLDER,
                master=self._master,
                settings=self._settings,
            )
            try:
                check_workers(spark)
                self._follow(archiving, spark, interrupts)
            finally:
                spark.stop()
        return self._entries

    def _note(self, entry: Entry) -> None:
        self._entries.append(entry)

    def _follow(self, archiving: Archiving, spark: "SparkSession", interrupts: Interrupts) -> None:
        total = archiving.offsets_left() if self._wanted.is_once else None
        seen = 0
        bar = progress(f"archive {self._topic.name}", total, shown=True)
        with bar as advance, BrokerWatch([self._wanted.bootstrap]) as watch:
            outages = OutageLines(watch)
            query = self._started(archiving, spark)
            while query.isActive and interrupts.noted is None:
                # The query runs in threads of its own; this one only looks on.
                time.sleep(POLL_S)
                outages.tell()
                for entry in self._entries[seen:]:
                    advance(entry.offsets)
                    seen += 1
            if query.isActive:
                stop_after_batch(query, archiving.gate, archiving.flow, archiving.checkpoint)
        self._check_end(query, archiving)

    def _started(self, archiving: Archiving, spark: "SparkSession") -> "StreamingQuery":
        from pyspark.errors import PySparkException

        try:
            return archiving.start(spark)
        except PySparkException as error:
            # Such as a time of --every that Spark can't read.
            raise ArchiveRefused(sentence_of_query(error, archiving.checkpoint)) from error

    def _check_end(self, query: "StreamingQuery", archiving: Archiving) -> None:
        error = query.exception()
        if error is None or is_stop(archiving.failure) or is_stop(error):
            return
        sentence = sentence_of_query(archiving.failure or error, archiving.checkpoint)
        raise ArchiveRefused(sentence.replace(_OPTION, _FLAG))
