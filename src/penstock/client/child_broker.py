"""A real broker as a child process, for tests and demonstrations, alone or in a cluster."""

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.client.errors import ClientError

# A machine that is busy with other things is not the fault of the broker.
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
LOG_LINES_KEPT = 200
_READY = " ready: kafka="


class ChildBroker:
    """`penstock up` in its own process on a free port; stops when the `with` block ends."""

    def __init__(
        self,
        data_dir: Path | str,
        *,
        kafka: str = "127.0.0.1:0",
        grpc: str = "127.0.0.1:0",
        http: str = "127.0.0.1:0",
        node: int = 0,
        peer: str | None = None,
        cluster: Mapping[int, str] | None = None,
        join: str | None = None,
        settings: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        on_log: Callable[[str], None] | None = None,
    ) -> None:
        """`peer`, `cluster` and `join` are as in `penstock up`; `flags` are any others of it.

        `on_log` hears every line of the broker's log, in a thread of its own.
        """
        self.data_dir = Path(data_dir)
        self.bootstrap = ""
        # Where its other doors are, once it is ready; empty if they are off.
        self.grpc = ""
        self.http = ""
        self.node = node
        # What it says when it is ready, as it says it.
        self.ready_line = ""
        self._kafka = kafka
        self._grpc = grpc
        self._http = http
        self._flags = [*_cluster_flags(peer, cluster, join), *flags]
        self._settings = dict(settings or {})
        self._environment = dict(environment or {})
        self._on_log = on_log
        self._process: subprocess.Popen[str] | None = None
        self._ready = threading.Event()
        self._log: deque[str] = deque(maxlen=LOG_LINES_KEPT)
        self._readers: list[threading.Thread] = []

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def log(self) -> str:
        """The last lines that the broker logged."""
        return "\n".join(self._log)

    @property
    def last_line(self) -> str:
        """The last thing it said, which after a refused start is the reason."""
        return self._log[-1].removeprefix("penstock: ") if self._log else "it printed nothing"

    @property
    def exit_code(self) -> int | None:
        """How the process ended, when it did so by itself; None while it runs."""
        return self._running().poll()

    @property
    def command_line(self) -> str:
        """What a person types to start it in a terminal; secrets from the environment are not
        part of it."""
        return shlex.join(["penstock", "up", *self._arguments()])

    def start(self) -> str:
        """Start and wait until it is ready; returns the bootstrap address."""
        self.launch()
        return self.await_ready()

    def launch(self) -> None:
        """Start without waiting: the members of a cluster wait for each other."""
        if self._process is not None:
            raise ClientError("The broker is already running.")
        self._process = subprocess.Popen(
            self._command(),
            # The pipe ends with this process, however that dies, and the broker ends with the pipe.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_clean_environment() | self._environment,
            # Ctrl-C goes to the whole process group; anyone who holds this object stops the broker.
            start_new_session=True,
        )
        self.bootstrap = ""
        self._ready = threading.Event()
        self._readers = [
            threading.Thread(target=self._read_output, args=(self._process,), daemon=True),
            threading.Thread(target=self._read_log, args=(self._process,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def wait_ready(self, timeout_s: float) -> bool:
        """Whether the start of a launched broker came to an end, good or bad, in that time."""
        return self._ready.wait(timeout_s)

    def await_ready(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Wait until a launched broker is ready; returns the bootstrap address."""
        self._running()
        if not self._ready.wait(timeout_s) or not self.bootstrap:
            self.kill()
            raise ClientError(f"The broker did not start: {self.last_line}")
        # A restart keeps the ports, so that clients find the broker again.
        self._kafka = self.bootstrap
        self._grpc = self.grpc or self._grpc
        self._http = self.http or self._http
        return self.bootstrap

    def stop(self) -> int:
        """Let the broker drain and end; returns its exit code."""
        self.ask_to_stop()
        return self._end()

    def ask_to_stop(self) -> None:
        """Begin to stop without waiting, so that several brokers can stop at once."""
        self._running().send_signal(signal.SIGTERM)
        # One that was paused would not hear it.
        self._running().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the broker at once, as `kill -9` or a power cut would."""
        self._running().send_signal(signal.SIGKILL)
        self._end()

    def pause(self) -> None:
        """Let the process stand still, as a machine that swaps or a stalled disk would."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def restart(self) -> str:
        """Stop, unless it is down already, and start on the same port with the same data."""
        if self._process is not None:
            self.stop()
        return self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.stop()

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "penstock.cli.main", "up", "--stop-with-stdin"]
        return [*command, *self._arguments()]

    def _arguments(self) -> list[str]:
        arguments = ["--node", str(self.node), "--kafka", self._kafka]
        arguments += ["--grpc", self._grpc, "--http", self._http]
        arguments += ["--data-dir", str(self.data_dir), *self._flags]
        for name, value in self._settings.items():
            arguments += ["--set", f"{name}={value}"]
        return arguments

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None:
            raise ClientError("The broker is not running.")
        return self._process

    def _end(self) -> int:
        process = self._running()
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        assert process.stdin is not None
        process.stdin.close()
        for reader in self._readers:
            reader.join(STOP_TIMEOUT_S)
        self._process = None
        return code

    def _read_output(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        ready = self._ready
        with process.stdout as lines:
            for line in lines:
                _, found, rest = line.partition(_READY)
                if found:
                    self.ready_line = line.rstrip()
                    self.bootstrap = rest.split()[0]
                    self.grpc = _address(rest, "grpc=")
                    self.http = _address(rest, "http=")
                    ready.set()
        # The output also ends when the start was refused, and then nobody should keep waiting.
        ready.set()

    def _read_log(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self._log.append(line.rstrip())
                if self._on_log is not None:
                    self._on_log(line.rstrip())


def _address(ready: str, name: str) -> str:
    """What the line says under this name, or nothing."""
    return next((word.removeprefix(name) for word in ready.split() if word.startswith(name)), "")


def _cluster_flags(
    peer: str | None, cluster: Mapping[int, str] | None, join: str | None
) -> list[str]:
    flags = []
    if peer is not None:
        flags += ["--peer", peer]
    if cluster:
        members = sorted(cluster.items())
        flags += ["--cluster", ",".join(f"{node}={address}" for node, address in members)]
    if join is not None:
        flags += ["--join", join]
    return flags


def _clean_environment() -> dict[str, str]:
    """The caller's environment without its PENSTOCK_* settings, which are meant for others."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
