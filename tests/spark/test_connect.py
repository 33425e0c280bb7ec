"""Proves that the data source works over Spark Connect: batch and stream, reading and writing, SQL.

The program runs in a process of its own, because a process is a client of Connect or has a session
of its own, as a user's is.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.conftest import Produce
from tests.spark.rig import Record
from tests.spark.rig_server import SparkServer

ROOT = Path(__file__).resolve().parents[2]
PROGRAM_TIMEOUT_S = 400
PROGRAM = """
import json, sys
from pyspark.sql import functions
import penstock.spark
from tests.spark.rig import started

remote, bootstrap, source, batch, stream, checkpoint = sys.argv[1:]
spark = penstock.spark.session(remote=remote)
server = {"kafka.bootstrap.servers": bootstrap}


def values(frame):
    decoded = frame.select("partition", functions.col("value").cast("string").alias("value"))
    return sorted([row.partition, row.value] for row in decoded.collect())


def topic(name):
    return spark.read.format("penstock").options(**server).option("subscribe", name).load()


upper = functions.upper(functions.col("value").cast("string")).alias("value")
rows = topic(source).select("key", upper)
rows.write.format("penstock").mode("append").options(**server).option("topic", batch).save()

following = spark.readStream.format("penstock").options(**server).option("subscribe", source)
copying = (
    following.option("startingOffsets", "earliest").load().select("key", "value")
    .writeStream.format("penstock").options(**server).option("topic", stream)
    .option("checkpointLocation", checkpoint).trigger(availableNow=True)
)
ended = started(copying.start).awaitTermination(240)

spark.sql(f\"\"\"
    CREATE TEMPORARY VIEW payments USING penstock
    OPTIONS (`kafka.bootstrap.servers` '{bootstrap}', subscribe '{source}')
\"\"\")
counted = spark.sql("SELECT count(*) AS n, count(DISTINCT partition) AS p FROM payments").first()

try:
    topic("not-there").collect()
    refused = None
except Exception as error:
    refused = str(error)

print(json.dumps({
    "kind": type(spark).__module__,
    "pushdown": spark.conf.get("spark.sql.python.filterPushdown.enabled"),
    "read": values(topic(source)),
    "batch": values(topic(batch)),
    "stream": values(topic(stream)),
    "view": [counted.n, counted.p],
    "narrowed": values(topic(source).where("partition = 1 AND offset < 3")),
    "ended": ended,
    "refused": refused,
}))
spark.stop()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.slow
def test_a_client_reads_writes_and_queries(
    spark_server: SparkServer,
    broker: Broker,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
    program: Path,
) -> None:
    source, batch, stream = (make_topic(partitions=3) for _ in range(3))
    produce(source, [Record(b"value-%d" % n, b"key-%d" % n) for n in range(60)])
    words = [spark_server.remote, broker.bootstrap, source, batch, stream]
    said = subprocess.run(
        [sys.executable, str(program), *words, str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        # No Java here: the server has one, and a client needs none.
        env={name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
        | {"PYTHONPATH": str(ROOT)},
    )
    assert said.returncode == 0, said.stderr[-3000:]
    found = json.loads(said.stdout.splitlines()[-1])
    assert found["kind"] == "pyspark.sql.connect.session"
    assert found["pushdown"] == "true"
    assert len(found["read"]) == 60
    assert found["batch"] == [[place, value.upper()] for place, value in found["read"]]
    assert found["ended"]
    assert found["stream"] == found["read"]
    assert found["view"] == [60, 3]
    assert len(found["narrowed"]) == 3
    assert {place for place, _ in found["narrowed"]} == {1}
    assert "not-there" in found["refused"]
