"""The pipeline as its user would run it: `penstock pipeline run` in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.cli.failures import CommandFailed
from penstock.pipelines.running.extras import ExtraMissing, require_spark
from penstock.pipelines.running.failures import NO_PYTHON
from penstock.pipelines.running.progress import ProgressLog
from penstock.pipelines.running.run_record import last_run
from penstock.pipelines.running.storage import Storage
from penstock.spark.java import JavaNotFound, find_java

MASTER = "local[2]"
# A laptop has few cores, and nothing here runs long enough for optimisations to pay off: small
# plans without generated code, one step of compilation, no web pages.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # How long Python waits for the JVM; 15 s are too few on a busy machine. For the opposite
    # direction the JVM allows 10 s, which no setting changes, and so a start is tried again.
    "spark.python.authenticate.socketTimeout": "120s",
}
STARTS_MAX = 2
STOP_TIMEOUT_S = 60.0
# After Ctrl-C nobody wants to wait.
ABANDON_TIMEOUT_S = 3.0


def why_no_spark() -> str | None:
    """Why the demonstration can't have Spark here, in a sentence; None if it can."""
    try:
        require_spark()
        find_java()
    except (ExtraMissing, JavaNotFound) as missing:
        return str(missing)
    return None


def iot_pipeline(parameters: Mapping[str, str]) -> list[str]:
    """The command that runs the IoT pipeline on this machine."""
    file = str(files("penstock.pipelines") / "templates" / "iot" / "iot.yaml")
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", file]
    command += ["--master", MASTER]
    for name, value in parameters.items():
        command += ["--parameter", f"{name}={value}"]
    for name, value in SETTINGS.items():
        command += ["--conf", f"{name}={value}"]
    return command


class SparkProcess:
    """Ends after its batch when the `with` block ends well, and at once when it does not."""

    def __init__(self, command: list[str], folder: Path) -> None:
        """`folder` holds its logs, and whatever a Spark that is cut short leaves behind."""
        self.starts = 0
        self._command = command
        self._folder = folder
        self._temporary = folder / "temporary"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._temporary.mkdir()
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Spark's own processes end when the one that started them has gone."""
        process = self._running()
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S if kind is None else ABANDON_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if kind is None and process.returncode != 0:
            raise CommandFailed(f"The pipeline did not end well: {self.last_words()}")

    def check(self) -> None:
        """Start it once more if the machine was too busy; raises CommandFailed if it has ended."""
        if self._running().poll() is None:
            return
        if self.starts < STARTS_MAX and NO_PYTHON in self.last_words():
            self._start()
            return
        raise CommandFailed(f"The pipeline ended too early: {self.last_words()}")

    def last_words(self) -> str:
        lines = self._log_path.read_text(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("penstock: ") if lines else "it said nothing."

    @property
    def _log_path(self) -> Path:
        return self._folder / f"pipeline-{self.starts}.log"

    def _start(self) -> None:
        """From its checkpoints, if it has run before."""
        self.starts += 1
        places = {"TMPDIR": str(self._temporary), "SPARK_LOCAL_DIRS": str(self._temporary)}
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | places,
                # Ctrl-C goes to the whole process group; this object's owner ends it.
                start_new_session=True,
            )

    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process


class Batches:
    """What `penstock pipeline status` would show of the flows: how many batches, and how long."""

    def __init__(self, storage: Path) -> None:
        self._storage = Storage(storage)

    def finished(self) -> dict[str, tuple[int, int]]:
        """By flow: micro-batches that have ended, and the milliseconds of the last."""
        run = last_run(self._storage)
        found = {}
        for flow in () if run is None else run.flows:
            last = ProgressLog(self._storage.flow(flow).progress).last()
            found[flow] = (last[0].batch + 1, last[0].batch_ms) if last else (0, 0)
        return found
