"""Starts the flows of a pipeline, looks after them, and ends them between two batches."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from penstock.pipelines.running.broker_watch import BrokerWatch
from penstock.pipelines.running.failures import (
    Cause,
    Failure,
    sentence_of_query,
    spark_is_gone,
    spark_refusals,
)
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.progress import BatchProgress, RuleCounts, plus
from penstock.pipelines.running.refusals import FlowFailed
from penstock.pipelines.running.restarting import Restarts
from penstock.pipelines.running.run_record import Phase, RunBook, RunState
from penstock.pipelines.running.running_flow import RunningFlow
from penstock.pipelines.running.starting import ReadyFlow, start
from penstock.pipelines.running.storage import Storage
from penstock.pipelines.running.watching import RunView, Watcher, run_view
from penstock.pipelines.running.waves import flows_before
from penstock.pipelines.specification.model import Pipeline

POLL_S = 0.2
# Spark makes no batch while there is nothing to read.
IDLE_AFTER_S = 10.0


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
    rules: RuleCounts = field(default_factory=dict)
    """Rows that broke a rule, by dataset and rule."""
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
        self._flows: dict[str, RunningFlow] = {}
        self._running: dict[str, RunningFlow] = {}
        self._ready: dict[str, ReadyFlow] = {}
        self._waiting: dict[str, ReadyFlow] = {}
        self._restarts = Restarts(pipeline.restart)
        self._ended: dict[str, Phase] = {}
        # When each flow was last seen to do something.
        self._busy: dict[str, float] = {}
        self._failed: dict[str, str] = {}
        self._counted: dict[str, FlowSummary] = {}

    def run(self, ready: Sequence[ReadyFlow]) -> tuple[FlowSummary, ...]:
        """Until all flows have ended; raises FlowFailed with the first that failed."""
        self._ready = {each.flow.name: each for each in ready}
        self._waiting = dict(self._ready)
        for name, each in self._ready.items():
            self._flows[name] = RunningFlow(each.flow, self._storage.flow(name), self._gate)
            self._counted[name] = _nothing_yet(name, self._book.run.sinks[name])
        addresses = [one for some in self._book.run.brokers.values() for one in some]
        try:
            with BrokerWatch(addresses) as brokers:
                while self._step():
                    self._show(brokers.silent)
                    time.sleep(POLL_S)
            self._show(silent={})
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
            given_up = [*self._waiting, *self._restarts.give_up()]
            self._waiting.clear()
            self._ended.update(dict.fromkeys(given_up, Phase.STOPPED))
            for flow in self._running.values():
                flow.stop_between_batches()
        self._start_those_that_may()
        for flow in self._running.values():
            self._look_after(flow)
        return self._ended.keys() != self._ready.keys()

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
            if self._may_start(name):
                del self._waiting[name]
                self._running[name] = self._flows[name]
                self._start(ready, self._flows[name])
                return

    def _may_start(self, name: str) -> bool:
        return self._before.get(name, frozenset()) <= self._ended.keys()

    def _start(self, ready: ReadyFlow, flow: RunningFlow) -> None:
        name, once = self._pipeline.name, self._book.run.once
        self._restarts.began(flow.name)
        self._busy[flow.name] = time.monotonic()
        try:
            start(ready, flow, pipeline=name, once=once, gate=self._gate)
        except spark_refusals() as refused:
            self._fail(flow.name, sentence_of_query(refused, flow.folder.checkpoint))

    def _look_after(self, flow: RunningFlow) -> None:
        if flow.name in self._ended or flow.name in self._restarts.resting:
            return
        # Asked first: what a flow did last is told after it has ended.
        is_over = not flow.is_active
        for batch in flow.take_progress():
            self._counted[flow.name] = _plus(self._counted[flow.name], batch)
            self._watcher.finished(flow.name, batch)
            self._restarts.did_a_batch(flow.name)
            self._busy[flow.name] = time.monotonic()
        if self._gate.under_way(flow.name) is not None:
            self._busy[flow.name] = time.monotonic()
        if is_over:
            self._conclude(flow)

    def _conclude(self, flow: RunningFlow) -> None:
        failure = flow.failure()
        if failure is not None and self._is_started_again(flow, failure):
            return
        if failure is not None:
            self._fail(flow.name, failure.sentence)
        else:
            was_asked = self._gate.is_requested
            self._ended[flow.name] = Phase.STOPPED if was_asked else Phase.ENDED

    def _fail(self, flow: str, sentence: str) -> None:
        """The others end after the batch that they are at."""
        self._ended[flow] = Phase.STOPPED
        self._failed[flow] = sentence
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

    def _show(self, silent: Mapping[str, str]) -> None:
        """Notes how the flows are, and shows what is noted: `status` sees the same."""
        self._book.flows(
            phases={name: self._phase(name) for name in self._ready},
            failures=dict(self._failed),
            resting=self._restarts.resting,
            silent=silent,
        )
        self._watcher.show(self._view())

    def _view(self) -> RunView:
        return run_view(self._book.run, lambda name: self._flows[name].last)

    def _phase(self, name: str) -> Phase:
        if name in self._ended:
            return self._ended[name]
        if name in self._waiting:
            return Phase.STARTING if self._may_start(name) else Phase.WAITING
        if name in self._restarts.resting or self._flows[name].is_initialising:
            return Phase.STARTING
        is_idle = time.monotonic() - self._busy[name] >= IDLE_AFTER_S
        return Phase.IDLE if is_idle else Phase.RUNNING


def _nothing_yet(flow: str, sink: str) -> FlowSummary:
    return FlowSummary(
        name=flow, sink=sink, batches=0, rows_in=0, rows_out=0, dead_letters=0, broken_rules=0
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
        rules=plus(summary.rules, batch.rules),
    )
