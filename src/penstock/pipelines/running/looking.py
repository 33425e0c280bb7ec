"""Looks at a pipeline from outside, by what it keeps in its folder."""

from penstock.pipelines.running.refusals import RunRefused
from penstock.pipelines.running.run_record import last_run
from penstock.pipelines.running.running_flow import last_of_checkpoint
from penstock.pipelines.running.storage import Storage
from penstock.pipelines.running.watching import RunView, run_view


def look(storage: Storage) -> RunView:
    """The last run and the last finished batch of each flow."""
    run = last_run(storage)
    if run is None:
        raise RunRefused(f"The pipeline in {storage.path} has not run yet.")
    return run_view(run, lambda flow: last_of_checkpoint(storage.flow(flow)))


def is_running(storage: Storage) -> bool:
    run = last_run(storage)
    return run is not None and not run.is_over
