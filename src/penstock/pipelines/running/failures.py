"""Cuts what Spark says about a failure to the sentence that matters.

A failure comes wrapped: in the query's, in that of `foreachBatch`, in the job's, in the task's. The
innermost one is what went wrong, and it is at the end: either the last line of the last Python
traceback, or what follows the last error class in brackets. Where code of the user's was under way,
the sentence names its file and line, and of a flow also what the batch read.
"""

import re
import shutil
import traceback
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from penstock.client.errors import BrokerUnreachable
from penstock.client.wire.errors import GaveUp
from penstock.model.errors import Explained
from penstock.pipelines.lakes.full_disk import full_disk_sentence, says_full_disk
from penstock.pipelines.running.checkpoint_folder import last_planned, planned_ranges

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
# What we refuse says all that there is to say, wherever it was raised.
OUR_SENTENCE = re.compile(r"^penstock\.[\w.]+: ", re.M)
# `  File "/home/me/anomalies.py", line 46, in bad`
FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)', re.M)
# Code that is nobody's own: installed, Python's, Spark's, or of no file.
LIBRARIES = re.compile(
    r"/(site|dist)-packages/|/lib/python\d|\.zip/|^<|/py4j/|/python/pyspark/"
    r"|/pyspark/(sql|errors|cloudpickle|worker|serializers|util)\b"
)
OWN_CODE = f"{Path(__file__).parents[2]}/"
# Whose text says nothing that a user of the class would not know.
OURS = ("penstock.", "pyspark.")
# What is raised, there or in a function of the user's, when somebody else is away for a while.
PASSING_ERRORS = frozenset(
    {
        "BrokenPipeError",
        "ConnectTimeout",
        "ConnectionAbortedError",
        "ConnectionError",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "GaveUp",
        "ReadTimeout",
        "TimeoutError",
    }
)
# The machine was too busy: Spark gives such a process ten seconds, which no setting changes.
NO_PYTHON = "Python worker failed to connect back"
# What Spark says when it lost an executor, a Python process or a connection.
PASSING_WORDS = (
    "ExecutorLostFailure",
    "FetchFailed",
    "Python worker exited unexpectedly",
    NO_PYTHON,
    "java.net.ConnectException",
    "java.net.SocketException",
    "java.net.SocketTimeoutException",
)
SENTENCE_LENGTH_MAX = 1_000
RANGES_SHOWN_MAX = 8
# A disk with less room than this is taken for the one that a failure speaks of.
FULL_BYTES_MAX = 1024 * 1024


class Cause(Enum):
    """What there is to hope for after a failure."""

    LASTING = auto()
    """The same again would fail the same way, as far as anybody can tell."""
    PASSING = auto()
    UNREACHED = auto()
    """No broker answers: passing where one has answered before, else the address is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    sentence: str
    cause: Cause


def cause_of(error: BaseException) -> Cause:
    """Only what is known to pass does: a function that raises or a schema that is wrong won't."""
    if isinstance(error, BrokerUnreachable):
        return Cause.UNREACHED
    if isinstance(error, GaveUp | ConnectionError | TimeoutError):
        return Cause.PASSING
    if isinstance(error, Explained):
        return Cause.LASTING
    text = str(error).partition(QUERY_DETAILS)[0]
    raised = _kind_raised_last(text)
    if raised == BrokerUnreachable.__name__:
        return Cause.UNREACHED
    if raised in PASSING_ERRORS or any(words in text for words in PASSING_WORDS):
        return Cause.PASSING
    return Cause.LASTING


def _kind_raised_last(text: str) -> str | None:
    """The class of the innermost exception in Python, without its module."""
    _, is_there, frames = text.rpartition(TRACEBACK)
    kinds = (RAISED.match(line) for line in frames.splitlines() if is_there)
    return next((kind["kind"].rpartition(".")[2] for kind in kinds if kind is not None), None)


def sentence_of(error: BaseException) -> str:
    """One sentence, which ends with a full stop."""
    if isinstance(error, Explained):
        return str(error)
    text = str(error).strip()
    if (found := worker_sentence(text)) is not None:
        return sentence(found)
    found = sentence(innermost(text) or type(error).__name__)
    line = user_line(error)
    if line is None:
        return found
    if TRACEBACK not in text and not isinstance(error, spark_refusals()):
        # Raised in this very process, so that its class is not part of the text.
        found = sentence(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    return f"{found.removesuffix('.')} ({line})."


def user_line(error: BaseException) -> str | None:
    """The last line of the user's own code that was under way, in a task or in this process."""
    raised = str(error).partition(QUERY_DETAILS)[0].rpartition(TRACEBACK)[2]
    if OUR_SENTENCE.search(raised):
        return None
    in_task = [(each["file"], each["line"], each["name"]) for each in FRAME.finditer(raised)]
    here = [
        (frame.filename, str(frame.lineno), frame.name)
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    for file, number, name in (*reversed(in_task), *reversed(here)):
        if not LIBRARIES.search(file) and not file.startswith(OWN_CODE):
            return f"{file}:{number}, in {name}"
    return None


def sentence_of_query(error: BaseException, checkpoint: Path) -> str:
    """The same for what ended a query, whose checkpoint Spark writes before and after a batch."""
    found = sentence_of(error)
    if isinstance(error, Explained):
        return found
    if not _is_full_disk(found, str(error)):
        return found if user_line(error) is None else f"{found}{_batch_text(checkpoint)}"
    if _free_bytes(checkpoint) < FULL_BYTES_MAX:
        return full_disk_sentence(f"the checkpoint {checkpoint}")
    return full_disk_sentence("Spark's own files (spark.local.dir) on the driver or a worker")


def _batch_text(checkpoint: Path) -> str:
    """Where to look for the record: a function gets many, and Spark says of none where it is."""
    batch = last_planned(checkpoint)
    ranges = {} if batch is None else planned_ranges(checkpoint, batch)
    if not ranges:
        return ""
    shown = [
        f"{offsets.start} to {offsets[-1]} of partition {place.partition} of topic {place.topic}"
        for place, offsets in sorted(ranges.items())
    ]
    if len(shown) > RANGES_SHOWN_MAX:
        left_out = len(shown) - RANGES_SHOWN_MAX
        shown = [*shown[:RANGES_SHOWN_MAX], f"{left_out} other partitions"]
    return f" The record is in batch {batch}, which reads offsets {' and '.join(shown)}."


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
            f"The worker {task['host']} does not have the Python package {package}: "
            f"pip install 'penstock-mq[spark-worker]' there."
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
