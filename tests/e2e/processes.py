"""A real broker process for tests: started as a user starts it, killed as fate kills it."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from penstock.client.free_ports import HeldPorts

READY = re.compile(
    r"ready: .*kafka=(?P<host>[^ ]+):(?P<port>\d+)"
    r"(?: grpc=(?P<grpc>[^ ]+))?(?: http=(?P<http>[^ ]+))?"
)
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
# Against hanging only: on a busy machine, a JVM alone may take half a minute to start.
COMMAND_TIMEOUT_S = 100.0


class DidNotStart(Exception):
    """The process ended, or stayed silent, before it said that it was ready."""

    def __init__(self, exit_code: int | None, stderr: str) -> None:
        super().__init__(f"exit code {exit_code}, stderr:\n{stderr}")
        self.exit_code = exit_code
        self.stderr = stderr


def command(*arguments: str) -> list[str]:
    """The command line of Penstock in the interpreter that runs the tests."""
    return [sys.executable, "-m", "penstock.cli.main", *arguments]


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's environment without Penstock's own variables, which would be settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return kept | {"PYTHONUNBUFFERED": "1"} | dict(extra or {})


class Broker:
    """One broker on one data directory; from the first start on it keeps its port for life."""

    def __init__(self, data_dir: Path, *flags: str) -> None:
        self.data_dir = data_dir
        self.flags = flags
        self.host = "127.0.0.1"
        self.port = 0
        # Where its other doors are; from the first start on it keeps those too.
        self.grpc = "127.0.0.1:0"
        self.http = "127.0.0.1:0"
        self.process: subprocess.Popen[str] | None = None
        self._ports = HeldPorts()
        self.stderr_path = data_dir.with_name(data_dir.name + ".stderr")

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, *, environment: Mapping[str, str] | None = None) -> "Broker":
        """Return once the broker says that it is ready."""
        assert not self.is_running
        if not self.port:
            (self.port,) = self._ports.take(1)
        arguments = ["up", "--kafka", self.bootstrap, "--grpc", self.grpc, "--http", self.http]
        arguments += ["--data-dir", str(self.data_dir)]
        with self.stderr_path.open("a") as stderr:
            self.process = subprocess.Popen(
                command(*arguments, *self.flags),
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=clean_environment(environment),
            )
        self._await_ready()
        return self

    def _await_ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        # `select` can't look at descriptors above 1,023, which benchmarks have.
        waiting = select.poll()
        waiting.register(self.process.stdout, select.POLLIN)
        while time.monotonic() < deadline:
            readable = waiting.poll(500)
            line = self.process.stdout.readline() if readable else ""
            if match := READY.search(line):
                self.host, self.port = match["host"], int(match["port"])
                self.grpc = match["grpc"] or self.grpc
                self.http = match["http"] or self.http
                return
            if readable and not line:
                break
        exit_code = self._end()
        raise DidNotStart(exit_code, self.stderr())

    def _end(self) -> int:
        assert self.process is not None
        try:
            return self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(timeout=10)

    def stderr(self) -> str:
        return self.stderr_path.read_text() if self.stderr_path.exists() else ""

    def kill(self) -> None:
        """`kill -9`: no chance to say goodbye."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=STOP_TIMEOUT_S)
        self._close_pipe()

    def terminate(self) -> int:
        """SIGTERM: drain, and report the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        exit_code = self.process.wait(timeout=STOP_TIMEOUT_S)
        self._close_pipe()
        return exit_code

    def close(self) -> None:
        """End the process whatever state it is in; for fixtures."""
        if self.is_running:
            self.kill()
        self._ports.close()

    def _close_pipe(self) -> None:
        assert self.process is not None
        if self.process.stdout is not None:
            self.process.stdout.close()

    def rss_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def connect(self, timeout_s: float = 10.0) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=timeout_s)


def run(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout_s: float = COMMAND_TIMEOUT_S,
    user: int | None = None,
    working_directory: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run one Penstock command to its end."""
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        input=stdin,
        env=clean_environment(environment),
        timeout=timeout_s,
        user=user,
        cwd=working_directory,
    )


def run_tool(
    arguments: Sequence[str], *, stdin: bytes | None = None, timeout_s: float = COMMAND_TIMEOUT_S
) -> bytes:
    """Run a foreign tool (kcat, node) and return its stdout; its failure is the test's."""
    outcome = subprocess.run(arguments, input=stdin, capture_output=True, timeout=timeout_s)
    assert outcome.returncode == 0, (
        f"{arguments[0]} ended with {outcome.returncode}: {outcome.stderr.decode()[-2000:]}"
    )
    return outcome.stdout
