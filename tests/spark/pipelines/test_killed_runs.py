"""Proves that archives and replays that are killed and started again lose and double nothing.

Also that the command ends after its batch when it is asked to, and goes on where it was.
"""

import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from benchmarks.spark_topics import fill_topic
from pyspark.sql import SparkSession

from penstock.client import Admin
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.pipelines.archives.ledger import Ledger
from penstock.pipelines.archives.replay_note import State, notes
from tests.documents import ROOT
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker, clean_environment, command, run
from tests.spark.conftest import Produce
from tests.spark.pipelines.archive_rig import archive, replay, verify
from tests.spark.rig_server import JVM_FLAGS, children
from tests.spark.topic_contents import stored
from tests.waiting import wait_until

RECORDS = 120_000
PARTITIONS = 2
START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 120.0


def environment(java_home: Path) -> dict[str, str]:
    return clean_environment(
        {
            "JAVA_HOME": str(java_home),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": JVM_FLAGS,
        }
    )


def kill_family(process: "subprocess.Popen[Any]") -> None:
    """All of it at once, like a machine without power: what stands still starts nothing more."""
    process.send_signal(signal.SIGSTOP)
    family: list[psutil.Process] = []
    while new := [each for each in children(process.pid) if each not in family]:
        for each in new:
            with suppress(psutil.NoSuchProcess):
                each.suspend()
        family += new
    process.kill()
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait(STOP_TIMEOUT_S)
    psutil.wait_procs(family, timeout=STOP_TIMEOUT_S)


def epochs(root: Path) -> int:
    return len(Ledger(root).numbers())


def rows(root: Path) -> int:
    """How many records are in the epochs so far."""
    return sum(entry.rows for entry in Ledger(root).entries())


def end_of(bootstrap: str, topic: str) -> int:
    """How many records the topic has got; 0 before it exists."""
    admin = Admin(bootstrap)
    if topic not in {one.name for one in admin.topics.all()}:
        return 0
    name = TopicName(topic)
    places = [TopicPartition(name, PartitionIndex(number)) for number in range(PARTITIONS)]
    return sum(admin.offsets.latest(places).values())


@pytest.mark.slow
@pytest.mark.timeout(800)
def test_what_was_killed_goes_on_without_loss_or_double(
    spark: SparkSession, java_home: Path, broker: Broker, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap
    topic = f"killed-{uuid.uuid4().hex[:8]}"
    target = f"{topic}-back"
    records = fill_topic(
        bootstrap,
        topic,
        partitions=PARTITIONS,
        records=RECORDS,
        value_bytes=100,
        batch_bytes=64_000,
    )
    whole, growing = tmp_path / "whole", tmp_path / "growing"
    archive(spark, bootstrap, topic, whole)

    arguments = [bootstrap, topic, str(growing), str(whole), target]
    with (tmp_path / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.pipelines.doomed_run", *arguments],
            cwd=tmp_path,
            env=environment(java_home),
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    try:
        wait_until(
            "both to be in the middle",
            lambda: (
                process.poll() is not None
                or (epochs(growing) > 1 and end_of(bootstrap, target) > 0)
            ),
            START_TIMEOUT_S,
        )
        assert process.poll() is None, (tmp_path / "stderr").read_text()[-3000:]
    finally:
        kill_family(process)
    assert verify(growing).findings == ()
    assert 0 < verify(growing).rows < records

    archive(spark, bootstrap, topic, growing)
    verdict = verify(growing)
    assert (verdict.findings, verdict.rows) == ((), records)

    (note,) = notes(whole)
    assert note.state is State.UNFINISHED
    assert 0 < end_of(bootstrap, target) < records
    assert replay(spark, bootstrap, whole, target) == (records, True)
    assert stored(bootstrap, target) == stored(bootstrap, topic)


@pytest.mark.slow
@pytest.mark.timeout(800)
def test_the_command_ends_after_its_batch_and_goes_on_later(
    spark: SparkSession,
    java_home: Path,
    broker: Broker,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    produce(topic, [b"early"] * 30)
    root = tmp_path / "archive"
    options = ["--to", str(root), "--every", "1 second", "--master", "local[2]"]
    process = subprocess.Popen(
        command("archive", topic, *options, "--bootstrap", broker.bootstrap),
        cwd=tmp_path,
        env=environment(java_home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(
            "an epoch", lambda: process.poll() is not None or rows(root) == 30, START_TIMEOUT_S
        )
        produce(topic, [b"later"] * 10)
        # Maybe in several epochs: one may begin when only some of the records are there.
        wait_until(
            "the rest", lambda: process.poll() is not None or rows(root) == 40, START_TIMEOUT_S
        )
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=STOP_TIMEOUT_S)
    finally:
        kill_family(process)
    assert (process.returncode, err) == (0, "")
    assert out == f"Archived 40 records of topic {topic} in {epochs(root)} epochs to {root}.\n"

    query = Ledger(root).entry(0).query
    produce(topic, [b"last"] * 5)
    (entry,) = archive(spark, broker.bootstrap, topic, root)
    assert (entry.query, entry.rows) == (query, 5)
    shown = run("archive", "verify", str(root), "--online", "--bootstrap", broker.bootstrap)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "45 records, 2 partitions" in shown.stdout
    assert shown.stdout.endswith(f"of topic {topic}: complete.\n")
    (root / entry.files[0].path).unlink()
    shown = run("archive", "verify", str(root))
    assert shown.returncode == 1
    assert shown.stdout == f"The file {entry.files[0].path} is missing.\n"
