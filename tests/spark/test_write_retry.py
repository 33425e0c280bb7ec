"""Proves that tasks that fail half-way and are run again lose no row."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.topic_contents import stored

ROWS = 60_000
PROGRAM_TIMEOUT_S = 400


@pytest.mark.slow
def test_no_row_is_lost_by_an_attempt_that_failed(
    java_home: Path, broker: Broker, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(partitions=3)
    notes = tmp_path / "notes"
    notes.mkdir()
    program = [sys.executable, "-m", "tests.spark.failing_write"]
    ended = subprocess.run(
        [*program, broker.bootstrap, topic, str(ROWS), str(notes)],
        env=os.environ
        | {
            "JAVA_HOME": str(java_home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert {each.name for each in notes.iterdir()} == {"0", "1"}
    found = Counter(record.key for record in stored(broker.bootstrap, topic))
    assert set(found) == {b"%d" % number for number in range(ROWS)}
    # The failed attempts had begun to write: at least once means that some rows are there twice.
    assert max(found.values()) <= 2
