"""What a run shows of itself to its watcher: a screen, a test, nobody."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.pipelines.running.flow_states import FlowState, flow_state
from penstock.pipelines.running.progress import BatchProgress
from penstock.pipelines.running.run_record import Rest, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowView:
    """A flow at this moment."""

    name: str
    sink: str
    state: FlowState
    rest: Rest | None = None
    """Until it is started again."""
    failure: str | None = None
    """Why it has failed for good."""
    last: BatchProgress | None = None
    """The last batch that has ended, maybe in an earlier run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    run: Run
    flows: tuple[FlowView, ...]


def run_view(run: Run, last: Callable[[str], BatchProgress | None]) -> RunView:
    """A run by its record, from inside or from outside; `last` has the last batch of each flow."""
    flows = tuple(
        FlowView(
            name=name,
            sink=run.sinks.get(name, ""),
            state=flow_state(run, name),
            rest=None if run.is_over else run.resting.get(name),
            failure=run.failures.get(name),
            last=last(name),
        )
        for name in run.flows
    )
    return RunView(run=run, flows=flows)


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
