"""Asks the executors of a cluster whether they have what a pipeline needs, before it starts."""

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import penstock
from penstock.pipelines.running.failures import sentence_of
from penstock.pipelines.running.refusals import RunRefused
from penstock.pipelines.running.sessions import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Report = tuple[str, str, str | None]
ANSWER_TIMEOUT_S = 120.0
JOB = "penstock-workers"
# Spark gives tasks to free executors, so that more of them reach more executors.
TASKS_PER_CORE = 2
ROUNDS = 2


def check_workers(spark: "SparkSession", timeout_s: float = ANSWER_TIMEOUT_S) -> None:
    """One tiny job; raises RunRefused naming a worker that lacks the package or has another."""
    context = spark.sparkContext
    if context.master is None or is_local(context.master):
        return
    # Executors come one after the other, and by the second time more of them are there.
    for _ in range(ROUNDS):
        refuse(_ask(spark, timeout_s), penstock.__version__)


def refuse(reports: Iterable[Report], version: str) -> None:
    for host, python, found in reports:
        if found is None:
            raise RunRefused(
                f"The worker {host} does not have the Python package penstock: pip install "
                f"'penstock-mq[spark-worker]=={version}' there for {python}."
            )
        if found != version:
            raise RunRefused(
                f"The worker {host} has penstock {found}, but the driver has {version}: pip "
                f"install 'penstock-mq[spark-worker]=={version}' there for {python}."
            )


def _ask(spark: "SparkSession", timeout_s: float) -> list[Report]:
    """In a thread, because a cluster without free workers never answers."""
    answers: list[Report] = []
    failures: list[Exception] = []
    context = spark.sparkContext
    tasks = max(context.defaultParallelism, 1) * TASKS_PER_CORE

    def run() -> None:
        try:
            context.setJobGroup(JOB, "Which Penstock do the workers have?", interruptOnCancel=True)
            answers.extend(
                context.parallelize(range(tasks), tasks).mapPartitions(_task()).collect()
            )
        except Exception as failure:
            failures.append(failure)

    asking = threading.Thread(target=run, name=JOB, daemon=True)
    asking.start()
    asking.join(timeout_s)
    if asking.is_alive():
        context.cancelJobGroup(JOB)
        raise RunRefused(
            f"No worker of {context.master} has run a task within {timeout_s:g} s: there is no "
            f"worker, or none has free cores and memory."
        )
    if failures:
        raise RunRefused(sentence_of(failures[0])) from failures[0]
    return answers


def _task() -> Any:
    """What each executor runs; it must not need anything of ours to be unpickled there."""

    def report(rows: Iterable[int]) -> Iterator[Report]:
        import socket
        import sys

        try:
            from penstock import __version__ as version
        except ImportError:
            version = None  # type: ignore[assignment]
        yield socket.gethostname(), sys.executable, version

    # Functions of a module that workers may lack travel whole only if they belong to no module.
    report.__module__ = "__main__"
    return report
