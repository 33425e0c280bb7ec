"""Runs a pipeline from its description to its end: one process, one Spark session, all flows."""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipelines.lakes.full_disk import full_disk_explained
from penstock.pipelines.running.extras import require_spark
from penstock.pipelines.running.failures import sentence_of, spark_is_gone
from penstock.pipelines.running.flows_run import FlowsRun, FlowSummary
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.refusals import FlowFailed, RunRefused
from penstock.pipelines.running.run_record import RunBook, RunState, new_run, sole_run
from penstock.pipelines.running.sessions import LOG, OUTPUT, make_session
from penstock.pipelines.running.starting import make_ready
from penstock.pipelines.running.storage import Storage, claim
from penstock.pipelines.running.watching import Nobody, Watcher
from penstock.pipelines.running.workers import check_workers
from penstock.pipelines.specification.model import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    seconds: float
    """From the start of the first flow to the end of the last."""
    flows: tuple[FlowSummary, ...]
    was_stopped: bool
    """Somebody asked for the end."""


def run_pipeline(
    pipeline: Pipeline,
    *,
    master: str | None = None,
    once: bool = False,
    settings: Mapping[str, str] | None = None,
    gate: StopGate | None = None,
    watcher: Watcher | None = None,
    spark: "SparkSession | None" = None,
) -> RunSummary:
    """Run all flows until they end by themselves (`once`) or `gate` is asked to stop.

    `settings` are Spark's and win over those of the file. A session that is given is used instead
    of one of our own, and left open. Raises RunRefused or SpecificationRefused where the pipeline
    is not started, and FlowFailed when a flow fails, after the others have ended their batch.
    """
    require_spark()
    storage = Storage(Path(pipeline.storage))
    with _full_disk_explained(storage), sole_run(storage):
        pipeline_id = claim(storage, pipeline.name)
        storage.stop.unlink(missing_ok=True)
        book = RunBook(storage, new_run(pipeline, once=once))
        one_run = _OneRun(
            pipeline=pipeline,
            pipeline_id=pipeline_id,
            storage=storage,
            book=book,
            gate=gate or StopGate(),
            watcher=watcher or Nobody(),
        )
        try:
            with _full_disk_explained(storage):
                summary = one_run.go(master, settings or {}, spark)
        except FlowFailed as failed:
            book.ended(str(failed), failed_flow=failed.flow)
            raise
        except BaseException as error:
            book.ended(sentence_of(error))
            raise
        book.ended()
        return summary


def _full_disk_explained(storage: Storage) -> AbstractContextManager[None]:
    return full_disk_explained(f"the storage {storage.path}", RunRefused, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OneRun:
    pipeline: Pipeline
    pipeline_id: str
    storage: Storage
    book: RunBook
    gate: StopGate
    watcher: Watcher

    def go(
        self, master: str | None, settings: Mapping[str, str], given: "SparkSession | None"
    ) -> RunSummary:
        if given is not None:
            return self._run(given)
        self.watcher.phase("Spark is starting.")
        spark = make_session(
            self.pipeline.name,
            storage=self.storage.path,
            master=master,
            settings={**self.pipeline.settings, **settings},
        )
        try:
            return self._run(spark)
        except spark_is_gone() as gone:
            raise RunRefused(
                f"Spark's process has died: {self.storage.path / OUTPUT} and "
                f"{self.storage.path / LOG} may say why."
            ) from gone
        finally:
            self.watcher.phase("Spark is ending.")
            with suppress(*spark_is_gone()):
                spark.stop()

    def _run(self, spark: "SparkSession") -> RunSummary:
        context = spark.sparkContext
        self.book.started(
            master=context.master, application=context.applicationId, ui=context.uiWebUrl
        )
        check_workers(spark)
        self.watcher.phase("The flows are being prepared.")
        ready = make_ready(self.pipeline, spark, self.storage, self.pipeline_id)
        self.book.state(RunState.RUNNING)
        began = time.monotonic()
        flows = FlowsRun(
            pipeline=self.pipeline,
            storage=self.storage,
            book=self.book,
            gate=self.gate,
            watcher=self.watcher,
        )
        done = flows.run(ready)
        return RunSummary(
            seconds=time.monotonic() - began, flows=done, was_stopped=self.gate.is_requested
        )
