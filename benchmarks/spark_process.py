"""Spark in a process of its own: measures what it is told to on its input, a JSON line each.

    python -m benchmarks.spark_process JARS JVM_OPTIONS

A request is {"command": ..., "arguments": {...}}, the answer {"result": ...} or {"error": ...}. The
process stays, so that the contenders take turns with warm sessions.
"""

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, TextIO

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.spark_sources import ConstantSource, InMemorySource
from benchmarks.tree_cpu import cpu_seconds_between, tree_cpu

QUERY_TIMEOUT_S = 900
SAMPLE_S = 0.25
POLL_S = 0.02

Options = dict[str, str]
Outcome = dict[str, Any]
Commands = dict[str, Callable[..., Outcome]]


def main(jars: str, jvm_options: str) -> None:
    # They are built on what this file has.
    from benchmarks.archive_commands import COMMANDS

    answers = take_stdout()
    spark = start_session(jars, jvm_options)
    commands: Commands = {
        **COMMANDS,
        "read_batch": read_batch,
        "read_stream": read_stream,
        "write": write,
        "triggers": triggers,
        "memory": memory,
    }
    serve(answers, spark, commands)


def serve(answers: TextIO, spark: SparkSession, commands: Commands) -> None:
    """Do as told until the input ends, and end Spark with it."""
    tell(answers, {"result": {"spark": spark.version}})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            result = commands[request["command"]](spark, **request["arguments"])
            tell(answers, {"result": result})
        except Exception as error:
            tell(answers, {"error": f"{type(error).__name__}: {error}"})
    spark.stop()


def take_stdout() -> TextIO:
    """Answers alone go out there; what else is printed, by the JVM too, goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def tell(answers: TextIO, message: Outcome) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def start_session(jars: str, jvm_options: str) -> SparkSession:
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
    )
    if jars:
        builder = builder.config("spark.jars", jars)
    if jvm_options:
        builder = builder.config("spark.driver.extraJavaOptions", jvm_options)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(InMemorySource)
    spark.dataSource.register(ConstantSource)
    return spark


class Stopwatch:
    """Wall time, and the CPU time of Spark's JVM and of all Python processes under it."""

    def __enter__(self) -> "Stopwatch":
        self.cpu_before = tree_cpu()
        self.started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.started
        self.cpu_seconds = cpu_seconds_between(self.cpu_before, tree_cpu())


def read_batch(spark: SparkSession, *, source: str, options: Options) -> Outcome:
    frame = spark.read.format(source).options(**options).load()
    with Stopwatch() as watch:
        frame.write.format("noop").mode("overwrite").save()
    return {"seconds": watch.seconds, "cpu_seconds": watch.cpu_seconds}


def read_stream(spark: SparkSession, *, source: str, options: Options) -> Outcome:
    """The time of the triggers: starting a query is not part of a stream's rate."""
    frame = spark.readStream.format(source).options(**options).load()
    with tempfile.TemporaryDirectory() as checkpoint, Stopwatch() as watch:
        query = start_noop(frame, checkpoint, availableNow=True)
        finish(query)
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    return {
        "seconds": sum(one["durationMs"]["triggerExecution"] for one in progress) / 1000,
        "cpu_seconds": watch.cpu_seconds,
        "rows": sum(one["numInputRows"] for one in progress),
    }


def write(spark: SparkSession, *, path: str, sink: str, options: Options) -> Outcome:
    frame = spark.read.parquet(path)
    with Stopwatch() as watch:
        frame.write.format(sink).options(**options).mode("append").save()
    return {"seconds": watch.seconds, "cpu_seconds": watch.cpu_seconds}


def triggers(
    spark: SparkSession, *, source: str, options: Options, warm: int, count: int
) -> Outcome:
    """How long each one-record trigger after the first ones took, and its parts."""
    frame = spark.readStream.format(source).options(**options).load()
    with tempfile.TemporaryDirectory() as checkpoint:
        query = start_noop(frame, checkpoint, processingTime="0 seconds")
        try:
            progress = await_triggers(query, warm + count)
        finally:
            query.stop()
    assert all(one["numInputRows"] == 1 for one in progress)
    return {"durations_ms": [dict(one["durationMs"]) for one in progress[warm : warm + count]]}


def await_triggers(query: StreamingQuery, count: int) -> list[StreamingQueryProgress]:
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    while True:
        progress = [one for one in query.recentProgress if one["numInputRows"]]
        if len(progress) >= count:
            return progress
        if (error := query.exception()) is not None:
            raise error
        assert time.monotonic() < deadline, f"only {len(progress)} of {count} triggers ran"
        time.sleep(POLL_S * max(1, count - len(progress)))


def memory(spark: SparkSession, *, source: str, options: Options) -> Outcome:
    """Resident megabytes of the Python processes under the JVM, from first record to last."""
    frame = spark.readStream.format(source).options(**options).load()
    samples: list[dict[int, float]] = []
    with tempfile.TemporaryDirectory() as checkpoint:
        query = start_noop(frame, checkpoint, availableNow=True)
        while query.isActive:
            if query.lastProgress is not None:
                samples.append(workers_megabytes())
            time.sleep(SAMPLE_S)
        finish(query)
    progress = query.recentProgress
    return {
        # A query may be over before it was looked at.
        "megabytes": samples or [workers_megabytes()],
        "rows": sum(one["numInputRows"] for one in progress),
        "batches": len([one for one in progress if one["numInputRows"]]),
    }


def workers_megabytes() -> dict[int, float]:
    """By process: others come and go, which must not hide what one of them keeps."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            resident = process.memory_info().rss
            # One that has ended holds nothing, though its parent did not look yet.
            if resident and process.name().startswith("python"):
                found[process.pid] = resident / 1e6
    return found


def start_noop(frame: DataFrame, checkpoint: str, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    return writer.trigger(**trigger).start()


def finish(query: StreamingQuery) -> None:
    """Raises what ended the query, unless that was its end."""
    assert query.awaitTermination(QUERY_TIMEOUT_S), "the query did not end"


if __name__ == "__main__":
    main(*sys.argv[1:])
