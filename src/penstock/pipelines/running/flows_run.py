"""Starts the flows of a pipeline, looks after them, and ends them between two batches."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock.pipelines.running.broker_watch import BrokerWatch, broker_addresses
from penstock.pipelines.running.failures import (
    Cause,
    Failure,
    sentence_of_query,
    spark_is_gone,
    spark_refusals,
)
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.progress import BatchProgress
from penstock.pipelines.running.refusals import FlowFailed
from penstock.pipelines.running.restarting import Restarts
from penstock.pipelines.running.run_record import RunBook, RunState
from penstock.pipelines.running.running_flow import RunningFlow
from penstock.pipelines.running.sink_names import sink_name
from penstock.pipelines.running.starting import ReadyFlow, start
from penstock.pipelines.running.storage import Storage
from penstock.pipelines.running.watching import FlowState, FlowView, RunView, Watcher
from penstock.pipelines.running.waves import flows_before
from penstock.pipelines.specification.model import Pipeline

POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSummary:
    """What a flow did in this run."""

    name: str
    sink: str
    batches: int
    rows_in: int
    rows_out: int | None
    """None if the sink does not count them."""
    dead_letters: int
    broken_rules: int
    restarts: int = 0


class FlowsRun:
    """One thread looks after all flows; Spark runs them in threads of its own."""

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        storage: Storage,
        book: RunBook,
        gate: StopGate,
        watcher: Watcher,
    ) -> None:
        self._pipeline = pipeline
        self._storage = storage
        self._book = book
        self._gate = gate
        self._watcher = watcher
        self._before = flows_before(pipeline) if book.run.once else {}
        self._running: dict[str, RunningFlow] = {}
        self._ready: dict[str, ReadyFlow] = {}
        self._waiting: dict[str, ReadyFlow] = {}
        self._restarts = Restarts(pipeline.restart)
        self._ended: set[str] = set()
        self._failed: dict[str, str] = {}
        self._counted: dict[str, FlowSummary] = {}

    def run(self, ready: Sequence[ReadyFlow]) -> tuple[FlowSummary, ...]:
        """Until all flows have ended; raises FlowFailed with the first that failed."""
        self._ready = {each.flow.name: each for each in ready}
        self._waiting = dict(self._ready)
        for each in ready:
            self._counted[each.flow.name] = _nothing_yet(each)
        try:
            with BrokerWatch(broker_addresses(self._pipeline)) as brokers:
                while self._step():
                    time.sleep(POLL_S)
                    self._book.waiting(silent=brokers.silent, resting=self._restarts.resting)
            self._watcher.show(self._view())
        except BaseException:
            self._end_all()
            raise
        if self._failed:
            raise FlowFailed(*next(iter(self._failed.items())))
        return tuple(
            replace(each, restarts=self._restarts.total[each.name])
            for each in self._counted.values()
        )

    def _step(self) -> bool:
        """Whether there is more to do."""
        if self._storage.stop.exists():
            self._gate.request()
        if self._gate.is_requested:
            self._book.state(RunState.STOPPING)
            self._waiting.clear()
            self._ended.update(self._restarts.give_up())
            for flow in self._running.values():
                flow.stop_between_batches()
        self._start_those_that_may()
        for flow in self._running.values():
            self._look_after(flow)
        self._watcher.show(self._view())
        return bool(self._waiting) or self._ended != self._running.keys()

    def _start_those_that_may(self) -> None:
        """One at a time: each start costs Python processes that have little time to begin."""
        rested = self._restarts.rested()
        if not self._waiting and rested is None:
            return
        if any(flow.is_initialising for flow in self._running.values()):
            return
        if rested is not None:
            self._start(self._ready[rested], self._running[rested])
            return
        for name, ready in self._waiting.items():
            if self._before.get(name, frozenset()) <= self._ended:
                del self._waiting[name]
                flow = RunningFlow(ready.flow, self._storage.flow(name), self._gate)
                self._running[name] = flow
                self._start(ready, flow)
                return

    def _start(self, ready: ReadyFlow, flow: RunningFlow) -> None:
        name, once = self._pipeline.name, self._book.run.once
        self._restarts.began(flow.name)
        try:
            start(ready, flow, pipeline=name, once=once, gate=self._gate)
        except spark_refusals() as refused:
            sentence = sentence_of_query(refused, flow.folder.checkpoint)
            raise FlowFailed(flow.name, sentence) from refused

    def _look_after(self, flow: RunningFlow) -> None:
        if flow.name in self._ended or flow.name in self._restarts.resting:
            return
        # Asked first: what a flow did last is told after it has ended.
        is_over = not flow.is_active
        for batch in flow.take_progress():
            self._counted[flow.name] = _plus(self._counted[flow.name], batch)
            self._watcher.finished(flow.name, batch)
            self._restarts.did_a_batch(flow.name)
        if is_over:
            self._conclude(flow)

    def _conclude(self, flow: RunningFlow) -> None:
        failure = flow.failure()
        if failure is not None and self._is_started_again(flow, failure):
            return
        self._ended.add(flow.name)
        if failure is not None:
            self._failed[flow.name] = failure.sentence
            # The others end after the batch that they are at.
            self._gate.request()

    def _is_started_again(self, flow: RunningFlow, failure: Failure) -> bool:
        """From its checkpoint, which is safe at any time."""
        if self._gate.is_requested or failure.cause is Cause.LASTING:
            return False
        if failure.cause is Cause.UNREACHED and flow.last is None:
            # It has never done anything, so that the address may be wrong.
            return False
        return self._restarts.may_rest(flow.name, failure.sentence)

    def _end_all(self) -> None:
        """When the thread that looks after them has failed itself."""
        self._gate.request()
        for flow in self._running.values():
            # What made us end may be that Spark is gone.
            with suppress(*spark_is_gone()):
                flow.end()

    def _view(self) -> RunView:
        flows = tuple(self._flow_view(name) for name in self._pipeline.flows)
        return RunView(run=self._book.run, flows=flows)

    def _flow_view(self, name: str) -> FlowView:
        running = self._running.get(name)
        if name in self._failed:
            state = FlowState.FAILED
        elif running is None:
            state = FlowState.WAITING
        elif name in self._restarts.resting:
            state = FlowState.RESTARTING
        else:
            state = FlowState.ENDED if name in self._ended else FlowState.RUNNING
        return FlowView(
            name=name,
            sink=sink_name(self._pipeline.flows[name].sink),
            state=state,
            last=None if running is None else running.last,
        )


def _nothing_yet(ready: ReadyFlow) -> FlowSummary:
    return FlowSummary(
        name=ready.flow.name,
        sink=sink_name(ready.flow.sink),
        batches=0,
        rows_in=0,
        rows_out=0,
        dead_letters=0,
        broken_rules=0,
    )


def _plus(summary: FlowSummary, batch: BatchProgress) -> FlowSummary:
    is_counted = summary.rows_out is not None and batch.rows_out is not None
    return replace(
        summary,
        batches=summary.batches + 1,
        rows_in=summary.rows_in + batch.rows_in,
        rows_out=(summary.rows_out or 0) + (batch.rows_out or 0) if is_counted else None,
        dead_letters=summary.dead_letters + batch.dead_letters,
        broken_rules=summary.broken_rules + batch.broken_rules,
    )
