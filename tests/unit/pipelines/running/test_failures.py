"""Of what Spark says about a failure, the sentence that matters is left."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.client.wire.errors import GaveUp
from penstock.pipelines.running.failures import (
    Cause,
    cause_of,
    sentence_of,
    sentence_of_query,
    worker_sentence,
)
from penstock.pipelines.sinks.sink import SinkRefused

QUERY = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
END = """
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: p.f2 [id = 1, runId = 2]
Logical Plan:
~WriteToMicroBatchDataSourceV1 ForeachBatchSink
"""
SOURCE = (
    QUERY
    + """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source \
perform prepareForTriggerAvailableNow: Traceback (most recent call last):
  File "/x/pyspark.zip/pyspark/sql/streaming/python_streaming_source_runner.py", line 279, in main
  File "/x/penstock/client/wire/cluster.py", line 75, in partitions
    raise unknown_topic(name)
          ^^^^^^^^^^^^^^^^^^^
penstock.client.wire.errors.UnknownTopic: Topic nothere does not exist."""
    + END
)
BATCH = (
    QUERY
    + """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in \
foreach batch sink. Reason: An exception was raised by the Python Proxy. Return Message: \
Traceback (most recent call last):
  File "/x/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/home/me/anomalies.py", line 46, in bad
    raise ValueError("sensor 7 is too hot")
ValueError: sensor 7 is too hot"""
    + END
)
RAISED_IN_SQL = (
    QUERY
    + """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred. Reason: Traceback (most recent \
call last):
  File "/x/pyspark/errors/exceptions/captured.py", line 262, in deco
    raise converted from None
pyspark.errors.exceptions.captured.SparkRuntimeException: [USER_RAISED_EXCEPTION] A row of \
readings breaks the rule plausible (temperature < 80): {"temperature":99.0}. SQLSTATE: P0001"""
    + END
)
JOB = """Job aborted due to stage failure: Task 0 in stage 5.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 5.0 (TID 8) (10.0.0.7 executor 1): \
org.apache.spark.SparkArithmeticException: \
[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.divideByZeroError(QueryExecutionErrors.scala)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (SOURCE, "Topic nothere does not exist."),
        (BATCH, "ValueError: sensor 7 is too hot (/home/me/anomalies.py:46, in bad)."),
        (
            RAISED_IN_SQL,
            'A row of readings breaks the rule plausible (temperature < 80): {"temperature":99.0}.',
        ),
        (JOB, "Division by zero."),
        ("[UNSUPPORTED] Not so. SQLSTATE: 0A000", "Not so."),
        ("java.io.IOException: No space left on device", "No space left on device."),
        ("", "RuntimeError."),
    ],
)
def test_spark_is_cut_to_the_sentence(text: str, sentence: str) -> None:
    assert sentence_of(RuntimeError(text)) == sentence


NOBODY = SOURCE.replace("wire.errors.UnknownTopic", "errors.BrokerUnreachable")
GAVE_UP = BATCH.replace("\nValueError:", "\npenstock.client.wire.errors.GaveUp:")
NO_DATABASE = BATCH.replace("\nValueError:", "\nrequests.exceptions.ConnectionError:")
LOST_EXECUTOR = JOB.replace("org.apache.spark.SparkArithmeticException: ", "ExecutorLostFailure ")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RuntimeError(SOURCE), Cause.LASTING),
        (RuntimeError(BATCH), Cause.LASTING),
        (RuntimeError(RAISED_IN_SQL), Cause.LASTING),
        (RuntimeError(JOB), Cause.LASTING),
        (RuntimeError("[UNRESOLVED_COLUMN] There is no column b."), Cause.LASTING),
        (ClientError("The broker refused records."), Cause.LASTING),
        (RuntimeError(NOBODY), Cause.UNREACHED),
        (BrokerUnreachable("No broker answers."), Cause.UNREACHED),
        (GaveUp("Gave up on reading."), Cause.PASSING),
        (ConnectionResetError("reset"), Cause.PASSING),
        (RuntimeError(GAVE_UP), Cause.PASSING),
        (RuntimeError(NO_DATABASE), Cause.PASSING),
        (RuntimeError(LOST_EXECUTOR), Cause.PASSING),
        (RuntimeError("Python worker failed to connect back."), Cause.PASSING),
    ],
)
def test_what_may_pass_is_told_from_what_lasts(error: Exception, cause: Cause) -> None:
    assert cause_of(error) is cause


def test_our_own_sentences_stay_as_they_are() -> None:
    assert sentence_of(SinkRefused("The table 'a' is\nfull.")) == "The table 'a' is\nfull."


def test_a_novel_is_cut() -> None:
    assert len(sentence_of(RuntimeError("word " * 10_000))) < 1_100


LOST = "Lost task 0.3 in stage 5.0 (TID 8) (10.0.0.7 executor 1): "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            LOST + "ModuleNotFoundError: No module named 'penstock'",
            "does not have the Python package penst",
        ),
        (
            LOST + 'java.io.IOException: Cannot run program "/opt/py": error=2',
            "no Python at /opt/py",
        ),
    ],
)
def test_a_worker_that_lacks_something_is_named(text: str, said: str) -> None:
    sentence = sentence_of(RuntimeError(text))
    assert sentence.startswith("The worker 10.0.0.7 ")
    assert said in sentence


def test_the_driver_is_no_worker() -> None:
    text = "Lost task 0.0 (TID 1) (host executor driver): No module named 'pandas'"
    assert worker_sentence(text) is None


IN_A_LIBRARY = (
    QUERY
    + """[FOREACH_BATCH_USER_FUNCTION_ERROR] Reason: Traceback (most recent call \
last):
  File "/x/py4j/clientserver.py", line 644, in _call_proxy
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/v/lib/python3.11/site-packages/pyspark/python/lib/pyspark.zip/pyspark/worker.py", line 1
  File "/home/me/steps.py", line 3, in outer
  File "/home/me/more.py", line 8, in <lambda>
  File "/v/lib/python3.11/site-packages/pandas/core/series.py", line 1040, in __getitem__
    return self._get_value(key)
  File "<__array_function__ internals>", line 5, in take
penstock_pipeline_steps_0123456789ab.TooHot: sensor 7
is too hot"""
    + END
)


def test_the_last_line_of_the_users_own_code_is_named() -> None:
    """Deeper ones belong to libraries, and earlier ones only led there."""
    found = sentence_of(RuntimeError(IN_A_LIBRARY))
    assert found == "TooHot: sensor 7 is too hot (/home/me/more.py:8, in <lambda>)."


def _raised(function: Callable[[], object]) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("it raises")


def test_what_a_function_raises_on_the_driver_has_its_type_file_and_line() -> None:
    code = compile("def ring(rows):\n    return rows['hot']\n", "/home/me/alarm.py", "exec")
    names: dict[str, Any] = {}
    exec(code, names)
    error = _raised(lambda: names["ring"]({}))
    assert sentence_of(error) == "KeyError: 'hot' (/home/me/alarm.py:2, in ring)."


def test_a_failed_function_is_told_with_what_its_batch_read(tmp_path: Path) -> None:
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    first = {"@start": {"readings": {"0": 5, "1": 0}}, "readings": {"0": 9, "1": 0}}
    second = {"readings": {"0": 10, "1": 4, "2": 3}}
    head = 'v1\n{"batchWatermarkMs":0}\n'
    (offsets / "0").write_text(f'{head}{{"version": 7}}\n{json.dumps(first)}')
    said = "ValueError: sensor 7 is too hot (/home/me/anomalies.py:46, in bad)."
    assert sentence_of_query(RuntimeError(BATCH), tmp_path) == (
        f"{said} The record is in batch 0, which reads offsets 5 to 8 of partition 0 of topic"
        " readings."
    )
    (offsets / "1").write_text(f'{head}{{"version": 8}}\n{json.dumps(second)}')
    assert sentence_of_query(RuntimeError(BATCH), tmp_path) == (
        f"{said} The record is in batch 1, which reads offsets 9 to 9 of partition 0 of topic"
        " readings and 0 to 3 of partition 1 of topic readings and 0 to 2 of partition 2 of topic"
        " readings."
    )
    assert sentence_of_query(RuntimeError(SOURCE), tmp_path) == "Topic nothere does not exist."
    many = {"readings": {str(partition): 20 for partition in range(12)}}
    (offsets / "2").write_text(f"{head}-\n{json.dumps(many)}")
    assert sentence_of_query(RuntimeError(BATCH), tmp_path).endswith(" and 4 other partitions.")
