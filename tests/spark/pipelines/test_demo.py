"""Proves that `penstock demo` shows and checks what Spark computed, and leaves nothing behind."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.e2e import processes
from tests.e2e.commands import Shell
from tests.waiting import wait_until

# As many as there are unless told otherwise.
SENSORS = 24
# These only bound what may hang: Spark starts in seconds, or in minutes where the cores are busy.
DEMO_TIMEOUT_S = 560
WAIT_S = 120


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_checks_what_is_in_the_lake(java_home: Path) -> None:
    words = ("demo", "--seconds", "5", "--rate", "200", "--json")
    outcome = processes.run(*words, timeout_s=DEMO_TIMEOUT_S)
    assert (outcome.returncode, outcome.stderr) == (0, ""), outcome
    summary = json.loads(outcome.stdout)
    assert summary["passed"] is True
    assert summary["failover"]["is_complete"] is True
    pipeline = summary["pipeline"]
    assert summary["produced"] == pipeline["archived"] > 800
    assert len(pipeline["latest"]) == SENSORS <= pipeline["windows"]
    heard = sum(pipeline["alerts"].values())
    assert pipeline["alerts_expected"] <= heard
    assert 0 < pipeline["warm_after_s"] < DEMO_TIMEOUT_S
    # However busy the machine is: what is timed has not waited for Spark to start.
    assert pipeline["alerts_left_out"] <= heard
    if pipeline["alerts_left_out"] < heard:
        assert pipeline["latency_p50_ms"] > 0


def test_ctrl_c_ends_spark_too(java_home: Path, tmp_path: Path) -> None:
    with started_demo(tmp_path) as demo:
        family = psutil.Process(demo.pid).children(recursive=True)
        assert len(family) >= 2
        press_ctrl_c(demo)
    wait_until("the end of all", lambda: not any(one.is_running() for one in family), WAIT_S)
    wait_until("an empty folder", lambda: list(tmp_path.iterdir()) == [], WAIT_S)


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_of_a_spark_that_is_slow_to_start(
    java_home: Path, tmp_path: Path
) -> None:
    with started_demo(tmp_path) as demo:
        pipeline = next(one for one in psutil.Process(demo.pid).children() if is_pipeline(one))
        wait_until("a file of Spark's", lambda: any(tmp_path.glob("*/temporary/*")), WAIT_S)
        pipeline.suspend()
        press_ctrl_c(demo)
    wait_until("an empty folder", lambda: list(tmp_path.iterdir()) == [], WAIT_S)


@contextmanager
def started_demo(temporary: Path) -> Iterator["subprocess.Popen[str]"]:
    environment = processes.clean_environment({"TMPDIR": str(temporary)})
    with Shell("127.0.0.1:1").start("demo", env=environment) as demo:
        assert demo.stdout is not None
        assert any("Spark is starting" in line for line in demo.stdout)
        yield demo


def press_ctrl_c(demo: "subprocess.Popen[str]") -> None:
    os.kill(demo.pid, signal.SIGINT)
    _, said = demo.communicate(timeout=WAIT_S)
    assert (demo.returncode, said.strip()) == (130, "")


def is_pipeline(process: psutil.Process) -> bool:
    return "pipeline" in process.cmdline()
