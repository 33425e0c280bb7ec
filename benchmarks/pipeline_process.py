"""Spark with two cores in a process of its own: runs whole pipelines as it is told to.

    python -m benchmarks.pipeline_process JARS JVM_OPTIONS

The protocol is that of benchmarks/spark_process.py.
"""

import sys

from pyspark.sql import SparkSession

import penstock.spark
from benchmarks.pipeline_iot_queries import by_hand, by_pipeline
from benchmarks.spark_process import serve, take_stdout

MASTER = "local[2]"


def main(_: str, jvm_options: str) -> None:
    answers = take_stdout()
    spark = start_session(jvm_options)
    serve(answers, spark, {"by_hand": by_hand, "by_pipeline": by_pipeline})


def start_session(jvm_options: str) -> SparkSession:
    """With the settings that `penstock pipeline run` has; both contenders share it."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    if jvm_options:
        settings["spark.driver.extraJavaOptions"] = jvm_options
    spark = penstock.spark.session("benchmarks", master=MASTER, settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    main(*sys.argv[1:])
