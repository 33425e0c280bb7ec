"""A Spark whose Python did not start in time is started once more, and other failures are told."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from penstock.cli.demo.spark_process import SETTINGS, SparkProcess, iot_pipeline
from penstock.cli.failures import CommandFailed

BUSY = "penstock: Python worker failed to connect back."
WAIT_S = 30.0


def failing(text: str, *, times: int, folder: Path) -> list[str]:
    """A program that says something and fails for the first starts, and then waits for its end."""
    program = f"""
import pathlib, sys, time
counter = pathlib.Path({str(folder)!r}) / "starts"
starts = len(counter.read_text()) if counter.exists() else 0
counter.write_text("x" * (starts + 1))
if starts < {times}:
    sys.exit({text!r})
time.sleep({WAIT_S})
"""
    return [sys.executable, "-c", program]


def await_end(process: SparkProcess) -> None:
    process._running().wait(WAIT_S)


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[SparkProcess]:
    """Cut short at the end, as by Ctrl-C."""
    with suppress(KeyboardInterrupt), SparkProcess(command, folder) as process:
        yield process
        raise KeyboardInterrupt


def test_a_start_on_a_busy_machine_is_tried_again(tmp_path: Path) -> None:
    with started(failing(BUSY, times=1, folder=tmp_path), tmp_path) as process:
        await_end(process)
        process.check()
        process.check()
        assert process.starts == 2


def test_but_only_once(tmp_path: Path) -> None:
    with started(failing(BUSY, times=2, folder=tmp_path), tmp_path) as process:
        await_end(process)
        process.check()
        await_end(process)
        with pytest.raises(CommandFailed, match="too early: Python worker failed to connect back"):
            process.check()
        assert process.starts == 2


def test_another_failure_is_told_at_once(tmp_path: Path) -> None:
    command = failing("penstock: There is no topic.", times=1, folder=tmp_path)
    with started(command, tmp_path) as process:
        await_end(process)
        with pytest.raises(CommandFailed, match=r"ended too early: There is no topic\."):
            process.check()
        assert process.starts == 1


def test_python_may_take_its_time_to_reach_spark() -> None:
    assert SETTINGS["spark.python.authenticate.socketTimeout"] == "120s"
    command = iot_pipeline({"brokers": "host:1"})
    assert "spark.python.authenticate.socketTimeout=120s" in command
    assert "brokers=host:1" in command
