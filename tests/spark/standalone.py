"""A standalone Spark cluster from the pip install: a master and workers as processes on loopback.

What it starts it ends by process id, the executors of killed workers included.
"""

import json
import subprocess
import urllib.request
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tests.e2e.ports import free_port
from tests.spark import spark_home
from tests.spark.rig_server import JVM_FLAGS, children, is_executor, spark_environment
from tests.waiting import wait_until

HOST = "127.0.0.1"
SPARK_CLASS = str(spark_home.HOME / "bin" / "spark-class")
MASTER_CLASS = "org.apache.spark.deploy.master.Master"
WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 30.0
LOG_TAIL = 4_000
# What a master or a worker needs to keep books; tasks run in executors.
DAEMON_MEMORY = "256m"


class Daemon:
    """One JVM that Spark's own script starts, with its output in a file."""

    def __init__(self, folder: Path, name: str, words: list[str], environment: dict[str, str]):
        self.name = name
        self.log_path = folder / f"{name}.log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [SPARK_CLASS, *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                cwd=folder,
            )

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def executors(self) -> list[psutil.Process]:
        return [each for each in children(self.process.pid) if is_executor(each)]

    def task_cpu_s(self) -> float:
        """What the Python of its executors has used up; that stands still between tasks."""
        used = 0.0
        for each in children(self.process.pid):
            try:
                if each.name().startswith("python"):
                    used += sum(each.cpu_times()[:2])
            except psutil.NoSuchProcess:
                continue
        return used

    def kill(self) -> None:
        """All at once, as when the machine loses its power: also what it had started."""
        family = children(self.process.pid)
        self.process.kill()
        for each in family:
            _end(each)
        self.process.wait(STOP_TIMEOUT_S)

    def close(self) -> None:
        family = children(self.process.pid)
        if self.is_running:
            self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)
        _, alive = psutil.wait_procs(family, timeout=5)
        for each in alive:
            _end(each)


class StandaloneCluster:
    """Leaving the `with` block ends all processes; a failure inside it tells of their logs."""

    def __init__(self, folder: Path, *, java_home: Path, workers: int = 2, cores: int = 1) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port, self.page_port = free_port(), free_port()
        self.master: Daemon | None = None
        self.workers: list[Daemon] = []
        self._workers_wanted = workers
        self._cores = cores
        self._environment = spark_environment(java_home) | {
            "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": JVM_FLAGS,
        }

    @property
    def address(self) -> str:
        """What `--master` takes."""
        return f"spark://{HOST}:{self.port}"

    def launch(self) -> None:
        """Start all of them without waiting; workers look for their master until it is there."""
        place = ["--host", HOST, "--port", str(self.port), "--webui-port", str(self.page_port)]
        self.master = Daemon(self.folder, "master", [MASTER_CLASS, *place], self._environment)
        for number in range(1, self._workers_wanted + 1):
            name = f"worker-{number}"
            words = [WORKER_CLASS, "--host", HOST, "--webui-port", "0"]
            words += ["--cores", str(self._cores), "--memory", "1g"]
            words += ["--work-dir", str(self.folder / name), self.address]
            self.workers.append(Daemon(self.folder, name, words, self._environment))

    def await_ready(self) -> None:
        wait_until("a Spark cluster", self._has_all_workers, START_TIMEOUT_S)

    def state(self) -> dict[str, Any]:
        """What the master's page says of workers and applications."""
        with urllib.request.urlopen(f"http://{HOST}:{self.page_port}/json/", timeout=10) as page:
            found = json.load(page)
        assert isinstance(found, dict)
        return found

    def _has_all_workers(self) -> bool:
        assert self.master is not None
        for daemon in (self.master, *self.workers):
            assert daemon.is_running, f"{daemon.name} ended: {daemon.log()[-LOG_TAIL:]}"
        try:
            return int(self.state()["aliveworkers"]) == self._workers_wanted
        except (OSError, HTTPException, ValueError):
            # A master listens before it has all its pages; until then "/" answers for "/json".
            return False

    def __enter__(self) -> Self:
        self.launch()
        try:
            self.await_ready()
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
        if error is not None:
            for daemon in (self.master, *self.workers):
                assert daemon is not None
                error.add_note(f"--- {daemon.name}\n{daemon.log()[-LOG_TAIL:]}")
        self.close()

    def close(self) -> None:
        """Workers first, so that they do not mourn their master."""
        for daemon in (*self.workers, self.master):
            if daemon is not None:
                daemon.close()


def _end(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
