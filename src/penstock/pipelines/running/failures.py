"""Cuts what Spark says about a failure to the sentence that matters.

A failure comes wrapped: in the query's, in that of `foreachBatch`, in the job's, in the task's. The
innermost one is what went wrong, and it is at the end: either the last line of the last Python
traceback, or what follows the last error class in brackets.
"""

import re
import shutil
from pathlib import Path

from penstock.model.errors import Explained
from penstock.pipelines.lakes.full_disk import full_disk_sentence, says_full_disk

QUERY_DETAILS = "\n=== Streaming Query ==="
TRACEBACK = "Traceback (most recent call last):"
JAVA_FRAME = re.compile(r"\n\s*at [\w.$/<>]+\(", re.ASCII)
# `penstock.client.errors.BrokerUnreachable: No broker answers ...`
RAISED = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
ERROR_CLASS = re.compile(r"\[[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*\] ")
SQL_STATE = re.compile(r"\s*SQLSTATE: \w+")
# `Caused by: java.io.IOException: No space left on device`
JAVA_CAUSE = re.compile(r"^\s*Caused by: (?P<cause>.*)$", re.M)
JAVA_CLASS = re.compile(r"^(?:[a-z_][\w]*\.)+[A-Z][\w$]*: ")
LOST_TASK = re.compile(r"\((?P<host>[^\s()]+) executor (?P<executor>[^\s()]+)\)")
MISSING_MODULE = re.compile(r"No module named '(?P<module>[\w.]+)'")
MISSING_PYTHON = re.compile(r'Cannot run program "(?P<program>[^"]+)"')
# Whose text says nothing that a user of the class would not know.
OURS = ("penstock.", "pyspark.")
SENTENCE_LENGTH_MAX = 1_000
# A disk with less room than this is taken for the one that a failure speaks of.
FULL_BYTES_MAX = 1024 * 1024


def sentence_of(error: BaseException) -> str:
    """One sentence, which ends with a full stop."""
    if isinstance(error, Explained):
        return str(error)
    text = str(error).strip()
    found = worker_sentence(text) or innermost(text)
    return sentence(found or type(error).__name__)


def sentence_of_query(error: BaseException, checkpoint: Path) -> str:
    """The same for what ended a query, whose checkpoint Spark writes before and after a batch."""
    found = sentence_of(error)
    if isinstance(error, Explained) or not _is_full_disk(found, str(error)):
        return found
    if _free_bytes(checkpoint) < FULL_BYTES_MAX:
        return full_disk_sentence(f"the checkpoint {checkpoint}")
    return full_disk_sentence("Spark's own files (spark.local.dir) on the driver or a worker")


def _is_full_disk(found: str, text: str) -> bool:
    """Also where Spark speaks of its state alone, and only what caused that says what it was."""
    return says_full_disk(found) or any(map(says_full_disk, JAVA_CAUSE.findall(text)))


def _free_bytes(path: Path) -> int:
    """Of the disk that a folder is on, or would be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def spark_is_gone() -> tuple[type[Exception], ...]:
    """What every call into Spark raises after its process has died."""
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    return (Py4JNetworkError, ConnectionError)


def spark_refusals() -> tuple[type[Exception], ...]:
    """What a call into a living Spark raises, whether PySpark has a class for it or not."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JJavaError)


def worker_sentence(text: str) -> str | None:
    """Names the worker where a task could not run because something is not installed there."""
    task = LOST_TASK.search(text)
    if task is None or task["executor"] == "driver":
        return None
    if missing := MISSING_MODULE.search(text):
        package = missing["module"].partition(".")[0]
        return (
            f"The worker {task['host']} lacks the Python package {package}: "
            f"pip install 'penstock[spark-worker]' there."
        )
    if program := MISSING_PYTHON.search(text):
        return (
            f"The worker {task['host']} has no Python at {program['program']}: set "
            f"spark.pyspark.python to one that all workers have."
        )
    return None


def innermost(text: str) -> str:
    """What was raised first, without the classes of Spark around it."""
    text = text.partition(QUERY_DETAILS)[0]
    if TRACEBACK in text:
        text = _raised_last(text.rpartition(TRACEBACK)[2])
    text = JAVA_FRAME.split(text)[0]
    text = ERROR_CLASS.split(text)[-1]
    text = SQL_STATE.sub("", text)
    return JAVA_CLASS.sub("", text.strip())


def sentence(text: str) -> str:
    """The text on one line, not endless, with a full stop."""
    line = " ".join(text.split())
    if len(line) > SENTENCE_LENGTH_MAX:
        line = line[:SENTENCE_LENGTH_MAX] + " ..."
    return line if line.endswith((".", "!", "?")) else f"{line}."


def _raised_last(traceback: str) -> str:
    """From the text after a traceback's headline: what was raised, frames left out."""
    lines = traceback.splitlines()
    for index, line in enumerate(lines):
        raised = RAISED.match(line)
        if raised is None:
            continue
        message = "\n".join([raised["message"] or "", *lines[index + 1 :]])
        if not message.strip():
            return raised["kind"].rpartition(".")[2]
        is_ours = raised["kind"].startswith(OURS)
        return message if is_ours else f"{raised['kind'].rpartition('.')[2]}: {message}"
    return traceback
