"""The IoT pipeline by its specification, and the same queries as somebody would write them."""

import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock.spark
from benchmarks.spark_process import Outcome, finish
from benchmarks.tree_cpu import cpu_seconds_between, tree_cpu
from penstock.pipelines.running.runner import run_pipeline
from penstock.pipelines.specification.reading import read_pipeline
from penstock.pipelines.templates.iot import anomalies

SPECIFICATION = Path(anomalies.__file__).with_name("iot.yaml")
SCHEMA = "sensor STRING, number BIGINT, temperature DOUBLE, at TIMESTAMP"
AVERAGES = """
    SELECT window.start AS begins, window.end AS ends, sensor, count(*) AS readings,
      avg(temperature) AS average, min(temperature) AS lowest, max(temperature) AS highest
    FROM {readings} GROUP BY window(at, '10 seconds'), sensor
"""
POSSIBLE = "temperature BETWEEN -60 AND 100"


def by_pipeline(spark: SparkSession, *, bootstrap: str, folder: str) -> Outcome:
    given = {"brokers": bootstrap, "lake": folder}
    pipeline = read_pipeline(SPECIFICATION, given, {})
    cpu_before = tree_cpu()
    summary = run_pipeline(pipeline, once=True, spark=spark)
    flows = {flow.name: flow for flow in summary.flows}
    return {
        "seconds": summary.seconds,
        "cpu_seconds": cpu_seconds_between(cpu_before, tree_cpu()),
        "readings": flows["readings_table"].rows_out,
        "windows": flows["averages_table"].rows_out,
    }


def by_hand(spark: SparkSession, *, bootstrap: str, folder: str) -> Outcome:
    """On the data source, with Spark's own Parquet sink."""
    queries = HandWritten(spark, bootstrap, Path(folder))
    cpu_before = tree_cpu()
    started = time.perf_counter()
    for query in queries.start():
        finish(query)
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds_between(cpu_before, tree_cpu()),
        "readings": spark.read.parquet(f"{folder}/readings").count(),
        "windows": spark.read.parquet(f"{folder}/averages").count(),
    }


class HandWritten:
    """The five flows of iot.yaml, each with the same input and the same kind of output."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._servers = {"kafka.bootstrap.servers": bootstrap}
        self._folder = folder
        good = self._decoded("value,partition,offset").where("decode_error IS NULL")
        good = good.select("decoded.*", "partition", "offset")
        complete = good.where("sensor IS NOT NULL AND at IS NOT NULL")
        readings = complete.where(POSSIBLE).withWatermark("at", "5 seconds")
        alerts = anomalies.find_anomalies(readings)
        self._tables = {
            "readings": readings,
            "averages": spark.sql(AVERAGES, readings=readings),
            "impossible": complete.where(f"NOT ({POSSIBLE}) OR temperature IS NULL"),
        }
        records = "key,value,topic,partition,offset,timestamp,headers"
        failed = penstock.spark.dead_letters(self._decoded(records))
        self._topics = {
            "alerts": alerts.selectExpr("sensor AS key", "to_json(struct(*)) AS value"),
            "readings-dead": failed,
        }

    def start(self) -> list[StreamingQuery]:
        tables = [
            self._writer(frame, name).format("parquet").start(str(self._folder / name))
            for name, frame in self._tables.items()
        ]
        topics = [
            self._writer(frame, name)
            .format("penstock")
            .options(**self._servers, topic=name)
            .start()
            for name, frame in self._topics.items()
        ]
        return [*tables, *topics]

    def _decoded(self, columns: str) -> DataFrame:
        reader = self._spark.readStream.format("penstock").options(**self._servers)
        reader = reader.options(subscribe="readings", startingOffsets="earliest", columns=columns)
        return penstock.spark.decode(reader.load(), "json", schema=SCHEMA)

    def _writer(self, frame: DataFrame, name: str) -> Any:
        checkpoint = str(self._folder / "checkpoints" / name)
        writer = frame.writeStream.option("checkpointLocation", checkpoint)
        return writer.trigger(availableNow=True)
