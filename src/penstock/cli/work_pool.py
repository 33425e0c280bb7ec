"""Workers that take records of a queue, run commands for them and settle them by their outcome."""

import os
import select
import signal
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from penstock.cli.interrupts import Interrupted
from penstock.cli.work_output import Outcome, Report
from penstock.cli.work_process import Ended
from penstock.client.wire.queue_leases import Lease, LeaseLost, OutcomeUnknown

# Outcomes that are not written yet; who reads them slowly holds up the workers, not the leases.
UNWRITTEN_MAX = 1_000
# How long brokers that are away are waited for at the end, to tell them what became of records.
SETTLE_S_MAX = 15.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    concurrency: int = 1
    reject_on: frozenset[int] = frozenset()
    drain_s: float = 30.0
    count_max: int | None = None
    idle_s: float | None = None


class Runs(Protocol):
    """What runs commands."""

    def run(self, lease: Lease) -> Ended | None: ...

    def cut_off(self) -> None: ...


class Takes(Protocol):
    """What records are taken from."""

    def take(self, count_max: int = 1, timeout_s: float | None = None) -> list[Lease]: ...

    def stop_taking(self) -> None: ...

    def close(self, limit_s: float = ..., *, settle_s: float = ...) -> None: ...


class Bell:
    """Wakes the main thread from other threads and from signal handlers, which may take no lock."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def ring(self) -> None:
        try:
            os.write(self._write, b"!")
        except BlockingIOError:
            # It rings already.
            return

    def wait(self, timeout_s: float | None) -> None:
        if select.select([self._read], [], [], timeout_s)[0]:
            os.read(self._read, 4_096)

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


class Signals:
    """Counts SIGINT and SIGTERM while its `with` block runs; the third one ends the process."""

    def __init__(self, bell: Bell) -> None:
        self.count = 0
        self.last = 0
        self._bell = bell
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.last = number
        if self.count > 1:
            for one in _SIGNALS:
                signal.signal(one, signal.SIG_DFL)
        self._bell.ring()


class WorkPool:
    """Runs until it has to stop; nothing is acked whose command did not exit with 0."""

    def __init__(self, reader: Takes, commands: Runs, policy: Policy, *, as_json: bool) -> None:
        self._reader = reader
        self._commands = commands
        self._policy = policy
        self._report = Report(as_json=as_json)
        self._bell = Bell()
        self._lock = threading.Lock()
        self._room = threading.Semaphore(UNWRITTEN_MAX)
        self._unwritten: deque[Outcome] = deque()
        self._failure: BaseException | None = None
        self._taken = 0
        self._busy = 0
        self._alive = policy.concurrency
        self._active_at = time.monotonic()
        self._threads = [
            threading.Thread(target=self._work, name=f"worker {number}", daemon=True)
            for number in range(policy.concurrency)
        ]

    def run(self) -> None:
        """Raises what went wrong for good, and Interrupted if commands had to be ended."""
        with Signals(self._bell) as signals:
            for thread in self._threads:
                thread.start()
            self._watch(signals)
            for thread in self._threads:
                thread.join()
            # What it settles at last is written, too.
            self._reader.close(settle_s=SETTLE_S_MAX)
            self._write()
        # Nobody is left who could ring.
        self._bell.close()
        if self._failure is not None:
            raise self._failure
        if signals.count > 1:
            raise Interrupted(signals.last)

    # The main thread: writes outcomes, hears signals

    def _watch(self, signals: Signals) -> None:
        deadline: float | None = None
        is_cut_off = False
        while self._is_at_work():
            left_s = None if deadline is None or is_cut_off else deadline - time.monotonic()
            self._bell.wait(left_s if left_s is None else max(left_s, 0.0))
            self._write()
            if deadline is None and (signals.count or self._failure is not None):
                self._reader.stop_taking()
                deadline = time.monotonic() + self._policy.drain_s
            is_over = deadline is not None and time.monotonic() >= deadline
            if not is_cut_off and (is_over or signals.count > 1):
                is_cut_off = True
                self._commands.cut_off()

    def _is_at_work(self) -> bool:
        with self._lock:
            return self._alive > 0

    def _write(self) -> None:
        try:
            while self._unwritten:
                self._report.write(self._unwritten.popleft())
                self._room.release()
        except OSError as error:
            # Nobody hears of outcomes any more.
            self._fail(error)
            self._unwritten.clear()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error
        self._bell.ring()

    # The workers

    def _work(self) -> None:
        try:
            while (lease := self._next()) is not None:
                ended = self._commands.run(lease)
                if ended is None:
                    # Not settled: it goes back when the queue is closed.
                    return
                self._settle(lease, ended)
        except BaseException as error:
            # Not settled either.
            self._fail(error)
            self._reader.stop_taking()
        finally:
            with self._lock:
                self._alive -= 1
            self._bell.ring()

    def _next(self) -> Lease | None:
        """The next record; None if there is none to be waited for."""
        self._room.acquire()
        with self._lock:
            if self._taken == self._policy.count_max:
                return None
            self._taken += 1
        while True:
            taken = self._reader.take(1, self._policy.idle_s)
            with self._lock:
                if taken:
                    self._busy += 1
                    self._active_at = time.monotonic()
                    return taken[0]
                if self._policy.idle_s is None or self._is_idle(self._policy.idle_s):
                    break
        self._reader.stop_taking()
        return None

    def _is_idle(self, idle_s: float) -> bool:
        return self._busy == 0 and time.monotonic() >= self._active_at + idle_s

    def _settle(self, lease: Lease, ended: Ended) -> None:
        if ended.is_cut_off:
            word, settled = "released", lease.release()
        elif ended.code == 0:
            word, settled = "acked", lease.accept()
        elif ended.code in self._policy.reject_on:
            word, settled = "rejected", lease.reject()
        else:
            word, settled = "released", lease.release()
        with self._lock:
            self._busy -= 1
            self._active_at = time.monotonic()
        settled.add_done_callback(lambda found: self._settled(lease, ended, word, found))

    def _settled(self, lease: Lease, ended: Ended, word: str, found: "Future[None]") -> None:
        """Called by the reader's threads."""
        error = found.exception()
        detail = ""
        if isinstance(error, LeaseLost):
            word = "unknown" if isinstance(error, OutcomeUnknown) else "lost"
            detail = str(error)
        elif error is not None:
            self._fail(error)
        self._unwritten.append(Outcome.of(lease, ended, word, detail))
        self._bell.ring()
