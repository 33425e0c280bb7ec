"""What the Spark workloads share: a broker on its own core, and the contenders' Spark processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from benchmarks.figures import Note
from benchmarks.placement import ANYWHERE, children_on, choose_placement
from benchmarks.spark_connector import SPARK_VERSION, Connector, ConnectorMissing, connector
from penstock.client.child_broker import ChildBroker

ROOT = Path(__file__).resolve().parent.parent
STOP_TIMEOUT_S = 60.0
# The compiler that starts fastest wins where nothing runs long enough for the other.
QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
OURS = "penstock"
JVM = "kafka"


class SparkFailed(Exception):
    """What the Spark process said instead of an answer."""


class SparkProcess:
    """One session in a process of its own, on Spark's core; `module` knows the commands."""

    def __init__(
        self,
        core: int | None,
        *,
        jars: str,
        jvm_options: str,
        stderr_path: Path,
        module: str = "benchmarks.spark_process",
    ) -> None:
        self.stderr_path = stderr_path
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        # Compiled code that can't be kept would be compiled again by every worker.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with stderr_path.open("w") as stderr, children_on(core):
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, jars, jvm_options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                cwd=ROOT,
                env=environment,
            )
        self._answer()

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"command": command, "arguments": arguments}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SparkFailed(f"Spark ended: {self.stderr_path.read_text()[-3000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise SparkFailed(answer["error"])
        result = answer["result"]
        assert isinstance(result, dict)
        return result

    def close(self) -> None:
        """Spark ends by itself when its input does."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class SparkRig:
    """Spark processes by the source that they measure, on another core than the broker.

    Where only that the workloads run counts, one process serves all, wherever there is room.
    """

    def __init__(self, folder: Path, *, shared: bool) -> None:
        self.placement = ANYWHERE if shared else choose_placement()
        self.connector, self.connector_missing = find_connector()
        self._folder = folder
        self._shared = shared
        self._processes: dict[str, SparkProcess] = {}

    def spark(self, source: str) -> SparkProcess:
        """Started when it is first asked for."""
        name = "shared" if self._shared else source
        if name not in self._processes:
            wants_jars = self.connector is not None and name in ("shared", JVM)
            jars = self.connector.spark_jars if self.connector and wants_jars else ""
            self._processes[name] = SparkProcess(
                self.placement.spark_core,
                jars=jars,
                jvm_options=QUICK_START if self._shared else "",
                stderr_path=self._folder / f"spark-{name}.stderr",
            )
        return self._processes[name]

    @contextmanager
    def process(self, module: str, name: str) -> Iterator[SparkProcess]:
        """A process for one workload alone, wherever there is room: it may use all cores."""
        process = SparkProcess(
            None,
            jars="",
            jvm_options=QUICK_START if self._shared else "",
            stderr_path=self._folder / f"spark-{name}.stderr",
            module=module,
        )
        try:
            yield process
        finally:
            process.close()

    @contextmanager
    def two_cores(self, module: str, name: str) -> Iterator[SparkProcess]:
        """The same; where only that the workloads run counts, the process that serves all does."""
        if self._shared:
            yield self.spark(OURS)
            return
        with self.process(module, name) as process:
            yield process

    @contextmanager
    def broker(self, folder: Path, *, anywhere: bool = False) -> Iterator[ChildBroker]:
        """On its own core, unless Spark is to have all of them too."""
        broker = ChildBroker(folder / "data")
        with children_on(None if anywhere else self.placement.broker_core):
            broker.launch()
        broker.await_ready()
        try:
            yield broker
        finally:
            broker.stop()

    def note(self) -> Note:
        """The placement and the versions, which belong to the figures."""
        if self.connector is None:
            peer = self.connector_missing
        else:
            peer = f"compared with spark-sql-kafka {self.connector.version}"
        text = f"Spark {SPARK_VERSION} as local[1]; {self.placement.description}; {peer}"
        return Note(topic="Spark", text=text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.close()


def find_connector() -> tuple[Connector | None, str]:
    try:
        return connector(), ""
    except ConnectorMissing as reason:
        return None, str(reason)
