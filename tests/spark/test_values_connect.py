"""Proves that values are decoded over Spark Connect too, in batch and in stream.

The program runs in a process of its own, because a process is a client of Connect or has a session
of its own; the values are decoded by executors apart from both.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.rig_server import SparkServer
from tests.unit.columns.values.avro_rows import record, written
from tests.unit.columns.values.messages import descriptor_set, message_class, sample_file

PROGRAM_TIMEOUT_S = 400
AVRO = record(id="long", tags={"type": "array", "items": "string"})
PROGRAM = """
import json, sys
from penstock.spark import dead_letters, decode, session
from penstock.spark.values import DecodeRefused

remote, folder, given = sys.argv[1:]
given = json.loads(given)
spark = session(remote=remote)
rows = [[bytes.fromhex(value) for value in row] for row in given["rows"]]
fields = "json BINARY, avro BINARY, proto BINARY, latin BINARY"
spark.createDataFrame(rows, fields).write.parquet(folder + "/source")


def decoded(frame):
    frame = decode(frame, "json", schema="a INT", column="json", into="j", error="je")
    frame = decode(frame, "avro", schema=given["avro"], column="avro", into="v", error="ve")
    frame = decode(
        frame, "protobuf", schema=bytes.fromhex(given["descriptors"]), message="sample.Sample",
        column="proto", into="p", error="pe",
    )
    return decode(frame, "text", encoding="utf-16-le", column="latin", into="t", error="te")


def seen(frame, *columns):
    return sorted(map(list, frame.selectExpr(*columns).collect()), key=str)


batch = decoded(spark.read.parquet(folder + "/source"))
# One decoder of Spark's own and one in Python are enough for the way of a stream.
stream = spark.readStream.schema(fields).parquet(folder + "/source")
stream = decode(stream, "json", schema="a INT", column="json", into="j", error="je")
stream = decode(stream, "avro", schema=given["avro"], column="avro", into="v", error="ve")
query = (
    stream.writeStream.format("parquet").option("checkpointLocation", folder + "/checkpoint")
    .trigger(availableNow=True).start(folder + "/out")
)
ended = query.awaitTermination(240)
refused = []
for schema in ("a INT,,", "a NOTHING"):
    try:
        decode(batch, "json", schema=schema, column="json")
    except DecodeRefused as error:
        refused.append(str(error))
letters = dead_letters(batch, "dead", value="json", error="je").collect()
print(json.dumps({
    "batch": seen(batch, "j.a", "v.id", "v.tags", "p.a_int32", "t", "je", "ve", "pe", "te"),
    "stream": seen(spark.read.schema(stream.schema).parquet(folder + "/out"), "j.a", "ve"),
    "ended": ended,
    "refused": refused,
    "letters": [[bytes(row.value).decode(), row.headers[-1].key, row.topic] for row in letters],
}))
spark.stop()
"""


@pytest.mark.slow
def test_a_client_decodes_all_formats(spark_server: SparkServer, tmp_path: Path) -> None:
    sample = message_class(sample_file(), "sample.Sample")
    good = [
        b'{"a": 1}',
        written(AVRO, {"id": 2, "tags": ["x"]}),
        sample(a_int32=3).SerializeToString(),
        "four".encode("utf-16-le"),
    ]
    given = {
        "rows": [[value.hex() for value in row] for row in (good, [b"{", b"", b"\xff", b"x"])],
        "avro": json.dumps(AVRO),
        "descriptors": descriptor_set(sample_file()).hex(),
    }
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    said = subprocess.run(
        [sys.executable, str(program), spark_server.remote, str(tmp_path), json.dumps(given)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        env={name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
    )
    assert said.returncode == 0, said.stderr[-3000:]
    found = json.loads(said.stdout.splitlines()[-1])
    assert found["ended"]
    whole, failed = found["batch"]
    assert found["stream"] == [[1, None], [None, failed[6]]]
    assert whole == [1, 2, ["x"], 3, "four", None, None, None, None]
    assert failed[:5] == [None] * 5
    assert failed[5:] == [
        "The value is not well-formed JSON.",
        "The Avro field 'id' can't be read at byte 0: the value ends too early.",
        "The value is not a Protobuf message sample.Sample.",
        "The value is not valid text in the encoding utf-16-le.",
    ]
    assert [sentence[:28] for sentence in found["refused"]] == [
        "The JSON schema 'a INT,,' is",
        "The JSON schema 'a NOTHING' ",
    ]
    assert found["letters"] == [["{", "penstock.reason", "dead"]]
