"""The last run of a pipeline as other processes see it, and the lock that says if it lives."""

import fcntl
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from penstock.pipelines.lakes.full_disk import is_full_disk
from penstock.pipelines.running.flow_brokers import brokers_by_flow
from penstock.pipelines.running.refusals import RunRefused
from penstock.pipelines.running.sink_names import sink_name
from penstock.pipelines.running.storage import Storage, read_json, write_json
from penstock.pipelines.specification.model import Pipeline

# Anyone who looks whether a run lives shares the lock for a moment, which must not look like a run.
LOCK_TIMEOUT_S = 1.0
LOCK_POLL_S = 0.02


class RunState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    FAILED = "failed"
    KILLED = "killed"
    """Never written: the file says that the run lives, and nobody holds the lock."""


OVER = frozenset({RunState.ENDED, RunState.FAILED, RunState.KILLED})


class Phase(StrEnum):
    """How far a run has come with a flow."""

    WAITING = "waiting"
    """For the flows that write what it reads."""
    STARTING = "starting"
    RUNNING = "running"
    IDLE = "idle"
    STOPPED = "stopped"
    ENDED = "ended"

    @property
    def is_over(self) -> bool:
        return self in (Phase.STOPPED, Phase.ENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A flow that has failed and is started again."""

    attempt: int
    """Which one in a row comes next."""
    attempts: int
    """How many there may be."""
    reason: str
    again_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`run.json`; times are milliseconds since 1970."""

    pipeline: str
    file: str
    pid: int
    host: str
    started_ms: int
    ended_ms: int | None = None
    state: RunState = RunState.STARTING
    master: str | None = None
    application: str | None = None
    """Spark's id of it."""
    ui: str | None = None
    """Where Spark's own web pages are."""
    once: bool = False
    flows: tuple[str, ...] = ()
    sinks: Mapping[str, str] = field(default_factory=dict)
    """What each flow writes to, in a word or two."""
    brokers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The addresses that each flow reads and writes."""
    phases: Mapping[str, Phase] = field(default_factory=dict)
    """By flow."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """By flow that has failed for good: why."""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Brokers that don't answer at the moment: by address, a sentence."""
    resting: Mapping[str, Rest] = field(default_factory=dict)
    """By flow."""
    error: str | None = None
    failed_flow: str | None = None

    @property
    def is_over(self) -> bool:
        return self.state in OVER


class RunBook:
    """Keeps `run.json` while a run lives."""

    def __init__(self, storage: Storage, run: Run) -> None:
        self._storage = storage
        self.run = run
        self._write()

    def started(self, *, master: str | None, application: str, ui: str | None) -> None:
        self.run = replace(self.run, master=master, application=application, ui=ui)
        self._write()

    def state(self, state: RunState) -> None:
        if state is not self.run.state:
            self.run = replace(self.run, state=state)
            self._note()

    def flows(
        self,
        *,
        phases: Mapping[str, Phase],
        failures: Mapping[str, str],
        resting: Mapping[str, Rest],
        silent: Mapping[str, str],
    ) -> None:
        """How the flows are, as often as somebody looks; written when it has changed."""
        run = replace(self.run, phases=phases, failures=failures, resting=resting, silent=silent)
        if run != self.run:
            self.run = run
            self._note()

    def ended(self, error: str | None = None, failed_flow: str | None = None) -> None:
        self.run = replace(
            self.run,
            state=RunState.ENDED if error is None else RunState.FAILED,
            error=error,
            failed_flow=failed_flow,
            ended_ms=now_ms(),
            silent={},
            resting={},
        )
        self._note()

    def _note(self) -> None:
        """A full disk is told of by whatever failed because of it, which must not be covered up."""
        try:
            self._write()
        except OSError as failure:
            if not is_full_disk(failure):
                raise

    def _write(self) -> None:
        write_json(self._storage.run, asdict(self.run))


def new_run(pipeline: Pipeline, *, once: bool) -> Run:
    return Run(
        pipeline=pipeline.name,
        file=pipeline.file,
        flows=tuple(pipeline.flows),
        sinks={flow.name: sink_name(flow.sink) for flow in pipeline.flows.values()},
        brokers=brokers_by_flow(pipeline),
        pid=os.getpid(),
        host=socket.gethostname(),
        started_ms=now_ms(),
        once=once,
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def last_run(storage: Storage) -> Run | None:
    """The last run, whose state is KILLED if it ended without saying so."""
    content = read_json(storage.run)
    if content is None:
        return None
    resting = content.get("resting", {})
    phases = content.get("phases", {})
    shaped = {
        "state": RunState(content["state"]),
        "flows": tuple(content["flows"]),
        "phases": {flow: Phase(phase) for flow, phase in phases.items()},
        "resting": {flow: Rest(**rest) for flow, rest in resting.items()},
    }
    run = Run(**(content | shaped))
    if not run.is_over and not is_locked(storage.lock):
        return replace(run, state=RunState.KILLED)
    return run


@contextmanager
def sole_run(storage: Storage) -> Iterator[None]:
    """Hold the pipeline's lock; raises RunRefused while another process does.

    The lock goes with its process, however that ends.
    """
    storage.path.mkdir(parents=True, exist_ok=True)
    with storage.lock.open("ab") as file:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while not _try_lock(file.fileno(), fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise RunRefused(_who_runs(storage))
            time.sleep(LOCK_POLL_S)
        yield


def is_locked(path: Path) -> bool:
    """Whether a run holds the lock at this moment; others who look don't count."""
    try:
        with path.open("rb") as file:
            return not _try_lock(file.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _who_runs(storage: Storage) -> str:
    run = last_run(storage)
    who = "another process" if run is None else f"process {run.pid} on {run.host}"
    return f"The storage {storage.path} is in use by {who}: `penstock pipeline stop` stops a run."
