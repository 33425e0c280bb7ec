"""What state a flow is in: decided here, from the run's record alone.

`penstock pipeline run` decides by the record that it writes, and `penstock pipeline status` by the
one that it reads, so that both say the same.
"""

from enum import StrEnum

from penstock.pipelines.running.run_record import Phase, Run, RunState


class FlowState(StrEnum):
    WAITING = "waiting"
    """For the flows that write what it reads, in a run that ends by itself."""
    STARTING = "starting"
    """Spark starts the query, or will do so when other flows have started."""
    RUNNING = "running"
    IDLE = "idle"
    """There has been nothing to read for a while."""
    NO_BROKER = "waiting for broker"
    """No broker answers at an address that it reads or writes."""
    RESTARTING = "restarting"
    """It has failed, and is started again after a pause."""
    STOPPING = "stopping"
    """It ends after its batch."""
    STOPPED = "stopped"
    """The run was asked to stop, or ended for another reason, before it had read everything."""
    ENDED = "ended"
    """It has read all that was there."""
    FAILED = "failed"
    KILLED = "killed"
    """The process of the run is gone without a word."""


# What to look at first, where there is not room for all flows.
BY_URGENCY = (
    FlowState.FAILED,
    FlowState.KILLED,
    FlowState.RESTARTING,
    FlowState.NO_BROKER,
    FlowState.STARTING,
    FlowState.STOPPING,
    FlowState.RUNNING,
    FlowState.IDLE,
    FlowState.WAITING,
    FlowState.STOPPED,
    FlowState.ENDED,
)

_BY_PHASE = {
    Phase.WAITING: FlowState.WAITING,
    Phase.STARTING: FlowState.STARTING,
    Phase.RUNNING: FlowState.RUNNING,
    Phase.IDLE: FlowState.IDLE,
    Phase.STOPPED: FlowState.STOPPED,
    Phase.ENDED: FlowState.ENDED,
}


def flow_state(run: Run, flow: str) -> FlowState:
    """The first of these that is true; a flow that the run has not noted yet is starting."""
    phase = run.phases.get(flow, Phase.STARTING)
    if flow in run.failures or flow == run.failed_flow:
        return FlowState.FAILED
    if phase.is_over:
        return _BY_PHASE[phase]
    if run.is_over:
        return FlowState.KILLED if run.state is RunState.KILLED else FlowState.STOPPED
    if flow in run.resting:
        return FlowState.RESTARTING
    if any(address in run.silent for address in run.brokers.get(flow, ())):
        return FlowState.NO_BROKER
    if run.state is RunState.STOPPING:
        return FlowState.STOPPING
    return _BY_PHASE[phase]
