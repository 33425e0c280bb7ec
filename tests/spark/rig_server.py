"""A Spark Connect server in a process of its own, whose tasks run on executors of their own.

One such server stands for three things that users have and the plain session of the other tests
has not: a server that clients reach over Connect, executors that are processes apart from the
driver, and Spark's own Kafka connector on the class path.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import psutil
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from tests.spark import spark_home
from tests.spark.class_archive import JVM_FLAGS

SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
EXECUTOR_CLASS = "CoarseGrainedExecutorBackend"
# Two executors of one core and 1024 MB each.
TWO_EXECUTORS = "local-cluster[2,1,1024]"
# It takes a free port by itself: one that was chosen for it could be taken while it starts.
ANY_PORT = "0"
STARTED = re.compile(r"Spark Connect server started at: [^ ]*:(?P<port>\d+)\s")
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.1
LOG_TAIL = 4_000
SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": JVM_FLAGS,
    "spark.executor.extraJavaOptions": JVM_FLAGS,
    # Whatever the executors are asked for in these tests fits into this.
    "spark.driver.memory": "1g",
}


class SparkServer:
    """Leaving the `with` block ends the server and its executors, and tells of a failure."""

    def __init__(self, folder: Path, *, java_home: Path, jars: Sequence[Path] = ()) -> None:
        self.folder = folder
        self.java_home = java_home
        self.jars = jars
        self.port = 0
        self.stderr_path = folder / "stderr"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def remote(self) -> str:
        """The address as a client of Connect names it."""
        return f"sc://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        with self.stderr_path.open("wb") as stderr:
            self.process = subprocess.Popen(
                self._command(),
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=spark_environment(self.java_home),
                cwd=self.folder,
            )
        try:
            self._await_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _command(self) -> list[str]:
        settings = SETTINGS | {
            "spark.connect.grpc.binding.port": ANY_PORT,
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }
        words = [str(spark_home.HOME / "bin" / "spark-submit"), "--class", SERVER_CLASS]
        words += ["--master", TWO_EXECUTORS]
        if self.jars:
            words += ["--jars", ",".join(map(str, self.jars))]
        for name, value in settings.items():
            words += ["--conf", f"{name}={value}"]
        return [*words, "spark-internal"]

    def _await_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            if started := STARTED.search(self.stderr()):
                self.port = int(started["port"])
                return
            time.sleep(POLL_S)
        raise AssertionError(f"the Spark server did not start: {self.stderr()[-LOG_TAIL:]}")

    def stderr(self) -> str:
        return self.stderr_path.read_text(errors="replace")

    def connect(self) -> SparkSession:
        """A session of this process; it lives beside the plain one."""
        session = ConnectSession.builder.remote(self.remote).create()
        return cast(SparkSession, session)

    def executors(self) -> list[psutil.Process]:
        """The processes that run tasks."""
        assert self.process is not None
        return [each for each in children(self.process.pid) if is_executor(each)]

    def close(self) -> None:
        """Executors and Python workers end with their server, or are ended."""
        assert self.process is not None
        family = children(self.process.pid)
        self.process.terminate()
        try:
            self.process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=STOP_TIMEOUT_S)
        _, alive = psutil.wait_procs(family, timeout=5)
        for each in alive:
            each.kill()


def spark_environment(java_home: Path) -> dict[str, str]:
    """What Spark's scripts need: where Spark, Java and Python are, and to stay on loopback."""
    return os.environ | {
        "JAVA_HOME": str(java_home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(spark_home.prepare()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def children(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def is_executor(process: psutil.Process) -> bool:
    try:
        return any(EXECUTOR_CLASS in word for word in process.cmdline())
    except psutil.Error:
        return False
