"""What there is to show of the demonstration at one moment, and the sentences for it.

The live screen, the plain lines and the report at the end take their words from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.cli.demo.cluster import NodeState
from penstock.cli.demo.events import Alerted
from penstock.cli.demo.expectation import Window
from penstock.cli.demo.failover import Phase
from penstock.cli.demo.ledger import Ledger
from penstock.cli.demo.pipeline_ledger import PipelineLedger


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The ledgers are the living ones: look at them in the main thread only."""

    started_s: float
    now_s: float
    seconds: float
    nodes: Mapping[int, NodeState]
    ledger: Ledger
    # None without Spark.
    pipeline: PipelineLedger | None
    # How often Spark was started.
    spark_starts: int = 0
    spark_warm_s: float | None = None

    @property
    def elapsed_s(self) -> float:
        return self.now_s - self.started_s


def title_text(view: View) -> str:
    if view.ledger.sent is not None:
        return "Penstock demo: the sensors are done, and the results are checked"
    if view.elapsed_s > view.seconds:
        return f"Penstock demo, {view.elapsed_s:.0f} s: {_waits_for(view)}"
    return f"Penstock demo, {view.elapsed_s:.0f} of {view.seconds:.0f} s"


def _waits_for(view: View) -> str:
    if view.pipeline is not None and not view.pipeline.is_warm:
        return "Spark starts slowly"
    if view.ledger.failover.phase is not Phase.BACK:
        return "the killed node has to come back"
    return "alerts are timed for some seconds more"


def leads_text(view: View, node: int) -> str:
    led = [one for one, leader in view.ledger.leaders.items() if leader == node]
    if not led or view.nodes[node] is not NodeState.UP:
        return "nothing"
    return f"partition{'s' if len(led) > 1 else ''} {listed(led)}"


def intact_text(ledger: Ledger) -> str:
    return f"{ledger.arrivals.skipped():,} lost, {ledger.arrivals.doubled:,} doubled"


def failover_texts(view: View) -> tuple[str, str]:
    """What happened when the node was killed, and how it came back."""
    failover = view.ledger.failover
    if failover.phase is Phase.READY:
        when = f"after {view.seconds / 2:.0f} s"
        if view.pipeline is not None and not view.pipeline.is_warm:
            when = "when Spark is warm"
        return f"one node will be killed {when}", ""
    at = f"{failover.killed_s - view.started_s:.0f} s"
    killed = f"node {failover.node} killed at {at}"
    if failover.phase is Phase.DOWN:
        pausing = f"{view.now_s - failover.killed_s:.1f} s so far"
        return f"{killed} with SIGKILL: its writes pause, {pausing}", ""
    paused = f"{killed}: writes paused {failover.pause_s:.2f} s; {intact_text(view.ledger)}"
    if failover.phase is Phase.MOVED:
        return paused, f"node {failover.node} is down; the others lead its partitions"
    if failover.phase is Phase.RETURNING:
        waiting = f"{view.now_s - failover.restarted_s:.1f} s so far"
        return paused, f"node {failover.node} restarts and catches up, {waiting}"
    return (
        paused,
        f"node {failover.node} is back, in sync {failover.return_s:.1f} s after its restart",
    )


def spark_text(view: View) -> str:
    pipeline = view.pipeline
    if pipeline is None:
        return "not shown"
    if not pipeline.is_warm:
        again = " again: the machine was too busy" if view.spark_starts > 1 else ""
        if not any(pipeline.batches.values()):
            return f"Spark is starting{again}; the readings wait in their topic"
        warm = f"{pipeline.warm_flows} of {len(pipeline.batches)} flows are warm"
        return f"warming up{again}: {warm}, batches of {slowest_s(pipeline):.1f} s"
    warm_s = (view.spark_warm_s or view.started_s) - view.started_s
    return (
        f"warm after {warm_s:.0f} s; {pipeline.archive.rows:,} readings in the table, "
        f"batches of {slowest_s(pipeline):.1f} s"
    )


def slowest_s(pipeline: PipelineLedger) -> float:
    return max(pipeline.batch_ms.values(), default=0) / 1000


def alerts_text(pipeline: PipelineLedger) -> str:
    heard = pipeline.alerts_by_controller.total()
    if not pipeline.is_warm:
        return f"{heard:,} heard; their time counts once Spark is warm"
    counted = heard - pipeline.left_out
    if not counted:
        return f"{pipeline.left_out:,} from before Spark was warm, not timed; none since"
    p50, p99 = (pipeline.latencies.percentile(share) / 1000 for share in (0.5, 0.99))
    return (
        f"{counted:,} since it was warm: p50 {p50:.1f} s, p99 {p99:.1f} s; "
        f"{pipeline.left_out:,} earlier not timed"
    )


def alert_text(alert: Alerted) -> str:
    return (
        f"{alert.controller} hears: {alert.sensor} says {alert.temperature:.1f} degrees, "
        f"usual are {alert.usual:.1f} ({alert.latency_ms / 1000:.1f} s ago)"
    )


def alert_cells(alert: Alerted) -> list[str]:
    said = f"{alert.temperature:.1f} instead of {alert.usual:.1f}"
    heard = f"heard by {alert.controller} after {alert.latency_ms / 1000:.1f} s"
    return [clock_text(alert.at_us), alert.sensor, said, heard]


WINDOW_HEADS = ("sensor", "window (UTC)", "readings", "average", "lowest", "highest")


def window_cells(window: Window) -> list[str]:
    times = f"{clock_text(window.begins_us)} to {clock_text(window.ends_us)}"
    degrees = (f"{value:.2f}" for value in (window.average, window.lowest, window.highest))
    return [window.sensor, times, f"{window.readings:,}", *degrees]


def clock_text(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%H:%M:%S")


def listed(numbers: list[int]) -> str:
    return ", ".join(str(one) for one in sorted(numbers))
