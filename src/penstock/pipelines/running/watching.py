"""What a run shows of itself to its watcher: a screen, a test, nobody."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from penstock.pipelines.running.progress import BatchProgress
from penstock.pipelines.running.run_record import Run


class FlowState(StrEnum):
    WAITING = "waiting"
    """For the flows that write what it reads, in a run that ends by itself."""
    RUNNING = "running"
    RESTARTING = "restarting"
    """It has failed, and is started again after a pause."""
    ENDED = "ended"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowView:
    """A flow at this moment."""

    name: str
    sink: str
    state: FlowState
    last: BatchProgress | None = None
    """The last batch that has ended, maybe in an earlier run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    run: Run
    flows: tuple[FlowView, ...]


class Watcher(Protocol):
    """Called by the run's own thread; it must return soon."""

    def phase(self, sentence: str) -> None:
        """What is being done before the flows run, or after."""

    def show(self, view: RunView) -> None:
        """A few times a second while flows run."""

    def finished(self, flow: str, batch: BatchProgress) -> None:
        """A micro-batch has ended."""


class Nobody:
    """Watches nothing."""

    def phase(self, sentence: str) -> None: ...

    def show(self, view: RunView) -> None: ...

    def finished(self, flow: str, batch: BatchProgress) -> None: ...
