"""What a Spark process does for the workloads of archive and replay, as it is told to."""

import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.spark_process import (
    Commands,
    Options,
    Outcome,
    Stopwatch,
    finish,
    read_stream,
    workers_megabytes,
)
from penstock.client import Admin
from penstock.pipelines.archives.archiving import Archiving, Wanted
from penstock.pipelines.archives.replay_target import target_topic
from penstock.pipelines.archives.replaying import Archived, Replaying, ReplayWanted
from penstock.pipelines.archives.topic_facts import topic_facts
from penstock.pipelines.lakes.opening import open_table

SAMPLE_S = 0.25


def archive(
    spark: SparkSession, *, bootstrap: str, topic: str, folder: str, offsets_max: int
) -> Outcome:
    """The time of the triggers, as for a read; memory is sampled from the first epoch on."""
    entries: list[Any] = []
    wanted = Wanted(
        root=Path(folder), bootstrap=bootstrap, is_once=True, offsets_per_batch_max=offsets_max
    )
    samples: list[dict[int, float]] = []
    facts = topic_facts(Admin(bootstrap), topic)
    with Archiving(wanted, facts, archived=entries.append) as archiving, Stopwatch() as watch:
        query = archiving.start(spark)
        while query.isActive:
            if entries:
                samples.append(workers_megabytes())
            time.sleep(SAMPLE_S)
        finish(query)
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    return {
        "seconds": sum(one["durationMs"]["triggerExecution"] for one in progress) / 1000,
        "cpu_seconds": watch.cpu_seconds,
        "rows": sum(entry.rows for entry in entries),
        "megabytes": samples or [workers_megabytes()],
    }


def replay(spark: SparkSession, *, bootstrap: str, topic: str, folder: str) -> Outcome:
    archived = Archived(Path(folder))
    target = target_topic(Admin(bootstrap), topic, archived.description)
    replaying = Replaying(ReplayWanted(root=Path(folder), bootstrap=bootstrap), archived, target)
    with Stopwatch() as watch:
        rows = replaying.run(spark)
    replaying.close()
    return {"seconds": watch.seconds, "cpu_seconds": watch.cpu_seconds, "rows": rows}


def write_archived(spark: SparkSession, *, folder: str, options: Options) -> Outcome:
    """Keys and values of the same files by the data source, which is the least that it can do."""
    description = Archived(Path(folder)).description
    paths = open_table(description.format, folder, description.options).paths()
    frame = spark.read.parquet(*paths).select("key", "value")
    with Stopwatch() as watch:
        frame.write.format("penstock").options(**options).mode("append").save()
    return {"seconds": watch.seconds, "cpu_seconds": watch.cpu_seconds}


COMMANDS: Commands = {
    "archive": archive,
    "read_stream": read_stream,
    "replay": replay,
    "write_archived": write_archived,
}
