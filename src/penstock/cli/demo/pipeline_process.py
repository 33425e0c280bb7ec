"""The pipeline as its user would run it: `penstock pipeline run` in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.cli.failures import CommandFailed

MASTER = "local[2]"
# What lets Spark start fast on a small machine: nothing here runs long enough for more.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
STOP_TIMEOUT_S = 60.0
# Whoever presses Ctrl-C does not want to wait.
ABANDON_TIMEOUT_S = 3.0


class PipelineProcess:
    """Ends after its batch when the `with` block ends well, and at once when it does not."""

    def __init__(self, file: Path, parameters: Mapping[str, str], folder: Path) -> None:
        """`folder` holds its log, and whatever a Spark that is cut short leaves behind."""
        self._log_path = folder / "pipeline.log"
        self._temporary = folder / "temporary"
        self._command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", str(file)]
        self._command += ["--master", MASTER]
        for name, value in parameters.items():
            self._command += ["--parameter", f"{name}={value}"]
        for name, value in SETTINGS.items():
            self._command += ["--conf", f"{name}={value}"]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._temporary.mkdir()
        places = {"TMPDIR": str(self._temporary), "SPARK_LOCAL_DIRS": str(self._temporary)}
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | places,
                # Ctrl-C goes to the whole process group; whoever holds this object ends it.
                start_new_session=True,
            )
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
        """Raises CommandFailed when the pipeline has ended by itself."""
        if self._running().poll() is not None:
            raise CommandFailed(f"The pipeline ended too early: {self.last_words()}")

    def last_words(self) -> str:
        lines = self._log_path.read_text(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("penstock: ") if lines else "it said nothing."

    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process
