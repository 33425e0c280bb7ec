"""A full disk is told from other failures, no matter who reports it, and is named after
what is on it.
"""

import errno
import sqlite3
from pathlib import Path

import pytest

from penstock.model.errors import Explained
from penstock.pipelines.lakes.full_disk import (
    full_disk_explained,
    full_disk_sentence,
    is_full_disk,
    is_own_disk_full,
)
from penstock.pipelines.lakes.lake_table import LakeRefused
from penstock.pipelines.running import failures
from penstock.pipelines.running.failures import sentence_of_query
from penstock.pipelines.running.progress import BatchProgress, ProgressLog
from penstock.pipelines.running.refusals import RunRefused

FULL = OSError(errno.ENOSPC, "No space left on device")
QUOTA = OSError(errno.EDQUOT, "Disk quota exceeded")
RUST = OSError("Generic LocalFileSystem error: No space left on device (os error 28)")
SQLITE = sqlite3.OperationalError("database or disk is full")
LOCKED = sqlite3.OperationalError("database is locked")
QUERY = RuntimeError(
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: java.io.IOException: "
    "No space left on device SQLSTATE: XXKST\n"
    "=== Streaming Query ===\nIdentifier: ..."
)

STATE = RuntimeError(
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Error writing state "
    "store files: The change log can't be closed. SQLSTATE: XXKST\n"
    "\tat org.apache.spark.sql.execution.streaming.state.RocksDB.commit(RocksDB.scala:1)\n"
    "Caused by: java.io.IOException: No space left on device\n"
)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "is_full", "is_own"),
    [
        (FULL, True, True),
        (QUOTA, True, True),
        (RUST, True, True),
        (SQLITE, True, True),
        (caused(RuntimeError("could not commit"), FULL), True, False),
        (RuntimeError("500: No space left on device"), True, False),
        (LOCKED, False, False),
        (OSError(errno.EACCES, "Permission denied"), False, False),
        (caused(LakeRefused("The table is full of holes."), FULL), False, False),
    ],
)
def test_a_full_disk_is_known_whoever_says_it(
    error: Exception, is_full: bool, is_own: bool
) -> None:
    assert is_full_disk(error) is is_full
    assert is_own_disk_full(error) is is_own


def test_only_a_full_disk_is_explained() -> None:
    with (
        pytest.raises(RunRefused, match=r"^The disk of the storage /s is full: free some space"),
        full_disk_explained("the storage /s", RunRefused),
    ):
        raise FULL
    for other in (LOCKED, LakeRefused("no"), KeyboardInterrupt()):
        with pytest.raises(type(other)) as raised, full_disk_explained("it", RunRefused):
            raise other
        assert raised.value is other
    with pytest.raises(RuntimeError), full_disk_explained("it", RunRefused, OSError):
        raise RuntimeError("a disk of Spark's: No space left on device")


def test_what_ended_a_query_is_named_by_which_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "not" / "there" / "yet"
    assert sentence_of_query(QUERY, checkpoint) == full_disk_sentence(
        "Spark's own files (spark.local.dir) on the driver or a worker"
    )
    monkeypatch.setattr(failures, "FULL_BYTES_MAX", 1 << 60)
    assert sentence_of_query(QUERY, checkpoint) == full_disk_sentence(
        f"the checkpoint {checkpoint}"
    )
    assert sentence_of_query(STATE, checkpoint) == sentence_of_query(QUERY, checkpoint)
    told: Explained = LakeRefused(full_disk_sentence("the table '/lake'"))
    assert sentence_of_query(told, checkpoint) == str(told)
    assert sentence_of_query(RuntimeError("else"), checkpoint) == "else."


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    log = ProgressLog(path)
    one = BatchProgress(at_ms=1, query="q", batch=0, rows_in=1, batch_ms=1)
    log.append(one)
    with path.open("a") as file:
        file.write('{"at_ms":1,"query":"')
    assert log.last(9) == [one]
    log.append(one)
    assert log.last(9) == [one, one]
    with path.open("a") as file:
        file.write('{"at_ms":1,"qu{"at_ms":2}\n')
    assert log.last(1) == [one]
