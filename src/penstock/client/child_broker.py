"""A real broker as a child process, for tests and demonstrations."""

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.client.errors import ClientError

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0
LOG_LINES_KEPT = 200
_READY = " ready: kafka="


class ChildBroker:
    """`penstock up` in its own process on a free port; stops when the `with` block ends."""

    def __init__(
        self,
        data_dir: Path | str,
        *,
        kafka: str = "127.0.0.1:0",
        node: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = Path(data_dir)
        self.bootstrap = ""
        self._kafka = kafka
        self._node = node
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[str] | None = None
        self._log: deque[str] = deque(maxlen=LOG_LINES_KEPT)
        self._readers: list[threading.Thread] = []

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def log(self) -> str:
        """The last lines that the broker logged."""
        return "\n".join(self._log)

    def start(self) -> str:
        """Start and wait until it is ready; returns the bootstrap address."""
        if self._process is not None:
            raise ClientError("The broker runs already.")
        self._process = subprocess.Popen(
            self._command(),
            # The pipe ends with this process, however that dies, and the broker ends with the pipe.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_clean_environment(),
            # Ctrl-C goes to the whole process group; whoever holds this object stops the broker.
            start_new_session=True,
        )
        ready = threading.Event()
        self._readers = [
            threading.Thread(target=self._read_output, args=(self._process, ready), daemon=True),
            threading.Thread(target=self._read_log, args=(self._process,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        if not ready.wait(START_TIMEOUT_S) or not self.bootstrap:
            self.kill()
            raise ClientError(f"The broker did not start: {self._last_line()}")
        # A restart keeps the port, so that clients find the broker again.
        self._kafka = self.bootstrap
        return self.bootstrap

    def stop(self) -> int:
        """Let the broker drain and end; returns its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker at once, as `kill -9` or a power cut would."""
        self._end(signal.SIGKILL)

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
        command += ["--kafka", self._kafka, "--data-dir", str(self.data_dir)]
        command += ["--node", str(self._node)]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None:
            raise ClientError("The broker is not running.")
        return self._process

    def _end(self, how: signal.Signals) -> int:
        process = self._running()
        process.send_signal(how)
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

    def _read_output(self, process: "subprocess.Popen[str]", ready: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                _, found, rest = line.partition(_READY)
                if found:
                    self.bootstrap = rest.split()[0]
                    ready.set()
        # The output also ends when the start was refused, and then nobody should keep waiting.
        ready.set()

    def _read_log(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self._log.append(line.rstrip())

    def _last_line(self) -> str:
        return self._log[-1] if self._log else "it said nothing"


def _clean_environment() -> dict[str, str]:
    """The caller's environment without its PENSTOCK_* settings, which are meant for others."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
