"""Runs a command once for a record: value on standard input, the rest in its environment.

What is too long for an environment is put into a file, which lives as long as the command.
"""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.failures import CommandFailed

if TYPE_CHECKING:
    from penstock.client.wire.queue_leases import Lease

# Systems take 128 KiB in one variable, some 256 KiB in all of them together.
VARIABLE_BYTES_MAX = 32 << 10
PREFIX = "PENSTOCK_"
VARIABLES = (
    "TOPIC",
    "PARTITION",
    "OFFSET",
    "ATTEMPT",
    "TIMESTAMP",
    "KEY",
    "KEY_BASE64",
    "KEY_FILE",
    "HEADERS",
    "HEADERS_FILE",
    "NULL_VALUE",
)
# Between asking a command to end and ending it.
TERMINATE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended; by a signal if the code is negative."""

    code: int
    seconds: float
    # Its time was over: whatever it says about itself, it was not let to finish.
    is_cut_off: bool


class Commands:
    """The processes of all workers; their threads call `run`, anybody `cut_off`."""

    def __init__(self, command: Sequence[str], *, is_output_ours: bool) -> None:
        self._command = [_program(command[0]), *command[1:]]
        # What commands print goes where it can't be taken for what we print.
        self._stdout = sys.stderr.fileno() if is_output_ours else None
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_cut_off = False

    @property
    def running(self) -> int:
        with self._lock:
            return len(self._running)

    def run(self, lease: "Lease") -> Ended | None:
        """None if nothing shall begin any more; raises CommandFailed if it can't be started."""
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="penstock-work-") as folder:
            process = self._start(lease, Path(folder))
            if process is None:
                return None
            code = process.wait()
        with self._lock:
            # One that has ended before the others were cut off was not cut off itself.
            is_cut_off = process not in self._running
            self._running.discard(process)
        return Ended(code=code, seconds=time.monotonic() - started, is_cut_off=is_cut_off)

    def _start(self, lease: "Lease", folder: Path) -> "subprocess.Popen[bytes] | None":
        environment = {**clean_environment(), **variables_of(lease, folder)}
        try:
            with value_file(lease.record.value, folder) as value, self._lock:
                if self._is_cut_off:
                    return None
                process = subprocess.Popen(
                    self._command,
                    stdin=value,
                    stdout=self._stdout,
                    env=environment,
                    # Ctrl-C is for us: commands are let to finish.
                    process_group=0,
                )
                self._running.add(process)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CommandFailed(f"{self._command[0]} can't be started: {reason}.") from None
        return process

    def cut_off(self, pause: Callable[[float], object] = time.sleep) -> None:
        """Ends what still runs, and lets nothing begin."""
        with self._lock:
            self._is_cut_off = True
            left, self._running = self._running, set()
        for process in left:
            _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + TERMINATE_S
        while any(one.poll() is None for one in left) and time.monotonic() < deadline:
            pause(0.02)
        for process in left:
            _signal(process, signal.SIGKILL)


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    """To the command and all it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is not None:
        return found
    if os.sep in name and Path(name).exists():
        kind = "a folder" if Path(name).is_dir() else "not executable"
        raise CommandFailed(f"{name} can't be started: it is {kind}.")
    raise CommandFailed(f"{name} can't be started: there is no such command.")


@contextlib.contextmanager
def value_file(value: bytes | None, folder: Path) -> Iterator[int]:
    """A file that holds the value and is at its beginning.

    Not a pipe: a command that does not read its input must not hold us up.
    """
    path = folder / "value"
    path.write_bytes(value or b"")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def clean_environment() -> dict[str, str]:
    """Ours, without what describes the record of a worker that started this one."""
    own = {PREFIX + name for name in VARIABLES}
    return {name: value for name, value in os.environ.items() if name not in own}


def variables_of(lease: "Lease", folder: Path) -> dict[str, str]:
    record = lease.record
    found = {
        "TOPIC": lease.partition.topic,
        "PARTITION": str(lease.partition.partition),
        "OFFSET": str(record.offset),
        "ATTEMPT": str(lease.attempt),
        "TIMESTAMP": str(record.timestamp_ms),
        **_key(record.key, folder),
        **_headers(record.headers, folder),
    }
    if record.value is None:
        found["NULL_VALUE"] = "1"
    return {PREFIX + name: value for name, value in found.items()}


def _key(key: bytes | None, folder: Path) -> Mapping[str, str]:
    if key is None:
        return {}
    if len(key) > VARIABLE_BYTES_MAX:
        return {"KEY_FILE": _file(folder / "key", key)}
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "\0"
    # A variable can't hold a zero byte.
    if "\0" in text:
        return {"KEY_BASE64": base64.b64encode(key).decode()}
    return {"KEY": text}


def _headers(headers: Sequence[tuple[str, bytes | None]], folder: Path) -> Mapping[str, str]:
    """Pairs, because a name may be there twice; what is not text is {"base64": ...}."""
    text = json.dumps([[name, _header(value)] for name, value in headers])
    if len(text) > VARIABLE_BYTES_MAX:
        return {"HEADERS_FILE": _file(folder / "headers", text.encode())}
    return {"HEADERS": text}


def _header(value: bytes | None) -> object:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _file(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)
