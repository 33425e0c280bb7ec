"""Looks at a pipeline from outside, by what it keeps in its folder."""

from penstock.pipelines.running.guarding import read_record
from penstock.pipelines.running.progress import ProgressLog
from penstock.pipelines.running.refusals import RunRefused
from penstock.pipelines.running.run_record import Run, RunState, last_run
from penstock.pipelines.running.storage import Storage
from penstock.pipelines.running.watching import FlowState, FlowView, RunView


def look(storage: Storage) -> RunView:
    """The last run and the last finished batch of each flow."""
    run = last_run(storage)
    if run is None:
        raise RunRefused(f"The pipeline in {storage.path} has not run yet.")
    flows = tuple(_flow(storage, name, run) for name in run.flows)
    return RunView(run=run, flows=flows)


def _flow(storage: Storage, name: str, run: Run) -> FlowView:
    folder = storage.flow(name)
    record = read_record(folder)
    last = ProgressLog(folder.progress).last()
    return FlowView(
        name=name,
        sink="" if record is None else record.sink,
        state=_state(name, run),
        last=last[0] if last else None,
    )


def _state(name: str, run: Run) -> FlowState:
    if run.failed_flow == name:
        return FlowState.FAILED
    if name in run.resting and not run.is_over:
        return FlowState.RESTARTING
    return FlowState.ENDED if run.is_over else FlowState.RUNNING


def is_running(storage: Storage) -> bool:
    run = last_run(storage)
    return run is not None and run.state in (
        RunState.STARTING,
        RunState.RUNNING,
        RunState.STOPPING,
    )
