"""Proves that whatever runs on Spark lives through an outage of its brokers, with every row once.

The broker is killed under a query with a backlog, a pipeline, an archive and a replay, stays away
for longer than a client waits for its first contact, and comes back on its port with its data.
`make soak` has it stay away for a minute (OUTAGE_SECONDS).
"""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from penstock.pipelines.lakes.opening import open_table
from penstock.pipelines.specification.model import LakeFormat
from tests.documents import ROOT
from tests.e2e.conftest import MakeBroker
from tests.e2e.processes import Broker
from tests.e2e.topics import create_topic
from tests.spark.pipelines.archive_rig import verify, without_offsets
from tests.spark.pipelines.running_rig import (
    good_numbers,
    numbers_in,
    readings,
    write_specification,
)
from tests.spark.pipelines.test_killed_runs import end_of, environment, epochs, kill_family
from tests.spark.rig import Record, produce
from tests.spark.topic_contents import stored
from tests.waiting import wait_until

OUTAGE_S = float(os.environ.get("OUTAGE_SECONDS", "12"))
RECORDS = 12_000
PARTITIONS = 2
BEGUN_TIMEOUT_S = 240.0
END_TIMEOUT_S = 400.0
# Each client says once that it waits; an attempt is made twice a second.
WAITING_LINES_MAX = 20


@pytest.fixture
def lone_broker(make_broker: MakeBroker) -> Broker:
    return make_broker().start()


@pytest.mark.soak
@pytest.mark.timeout(900 + 2 * OUTAGE_S)
def test_everything_goes_on_after_an_outage_and_every_row_is_there_once(
    java_home: Path, lone_broker: Broker, tmp_path: Path
) -> None:
    bootstrap = lone_broker.bootstrap
    topic, copied = (create_topic(bootstrap, partitions=PARTITIONS) for _ in range(2))
    target = f"{topic}-back"
    produce(
        bootstrap,
        topic,
        [Record(each, partition=n % PARTITIONS) for n, each in enumerate(readings(0, RECORDS))],
    )
    growing, whole = tmp_path / "growing", tmp_path / "whole"
    file = write_specification(tmp_path)
    file.write_text(
        file.read_text().replace("maxOffsetsPerTrigger: 50", "maxOffsetsPerTrigger: 1000")
    )
    raw = tmp_path / "lake" / "raw"

    go_on = tmp_path / "go-on"
    paths = [str(growing), str(whole), target, str(file), str(go_on)]
    arguments = [bootstrap, topic, copied, *paths]
    said = tmp_path / "stderr"
    with said.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.pipelines.outage_run", *arguments],
            cwd=tmp_path,
            env=environment(java_home)
            | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )

    def have_all_begun() -> bool:
        assert process.poll() is None, said.read_text()[-3000:]
        return (
            epochs(growing) > 1
            and files_in(raw) > 1
            and end_of(bootstrap, copied) > 0
            and end_of(bootstrap, target) > 0
        )

    try:
        wait_until("all four to be in the middle", have_all_begun, BEGUN_TIMEOUT_S)
        lone_broker.kill()
        go_on.touch()
        time.sleep(OUTAGE_S)
        assert process.poll() is None, said.read_text()[-3000:]
        lone_broker.start()
        process.wait(END_TIMEOUT_S)
    finally:
        kill_family(process)
    lines = said.read_text()
    assert process.returncode == 0, lines[-3000:]

    records = stored(bootstrap, topic)
    copies = Counter((one.partition, one.value) for one in stored(bootstrap, copied))
    assert copies == Counter((one.partition, one.value) for one in records)
    verdict = verify(growing)
    assert (verdict.findings, verdict.rows) == ((), RECORDS)
    assert without_offsets(stored(bootstrap, target)) == without_offsets(records)
    assert numbers_in(raw) == good_numbers(RECORDS)

    gone = f"No broker answers at {bootstrap}: connection refused. Waiting"
    assert 0 < lines.count(f"{gone} up to 10 min (") < WAITING_LINES_MAX
    assert "Continuing after" in lines
    assert lines.count(f"{gone} for it.") == 1
    assert lines.count(f"A broker answers at {bootstrap} again.") == 1


def files_in(table: Path) -> int:
    return len(open_table(LakeFormat.PARQUET, str(table)).paths()) if table.exists() else 0
