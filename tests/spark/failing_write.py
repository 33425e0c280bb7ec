"""A program: writes rows to a topic by tasks of which each fails once, half-way through.

Run by test_write_retry.py in a process of its own, because tasks of a session on `local[2]` have
only one attempt. Arguments: bootstrap, topic, rows, folder for notes of who failed.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from pyarrow import RecordBatch
from pyspark import TaskContext
from pyspark.sql import SparkSession

BATCHES_BEFORE_FAILURE = 3


def main(bootstrap: str, topic: str, rows: int, notes: str) -> None:
    def fail_once(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == BATCHES_BEFORE_FAILURE and context.attemptNumber() == 0:
                Path(notes, str(context.partitionId())).touch()
                raise RuntimeError("the first attempt fails half-way")
            yield batch

    spark = (
        SparkSession.builder.master("local[2, 2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "5000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    frame = spark.range(0, rows, 1, 2).selectExpr("string(id) AS key", "repeat('x', 200) AS value")
    failing = frame.mapInArrow(fail_once, frame.schema)
    writer = failing.write.format("penstock").mode("append")
    writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
