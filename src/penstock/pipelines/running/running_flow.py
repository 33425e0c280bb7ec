"""A flow at work: its query, what its batches have done, and how it ends."""

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.pipelines.running.checkpoint_folder import query_id
from penstock.pipelines.running.failures import (
    Failure,
    cause_of,
    sentence_of_query,
    spark_refusals,
)
from penstock.pipelines.running.gate import StopGate
from penstock.pipelines.running.progress import (
    BatchProgress,
    ProgressLog,
    Totals,
    batch_progress,
    is_idle,
    with_lag_from,
)
from penstock.pipelines.running.stopping import (
    STOP_TIMEOUT_S,
    is_between_batches,
    is_stop,
    stop_after_batch,
)
from penstock.pipelines.running.storage import FlowFolder
from penstock.pipelines.sinks.sink import Epoch, Written
from penstock.pipelines.specification.model import Flow

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

NO_BATCH = -1
# What Spark says of a query before it looks at its sources for the first time.
INITIALISING = "Initializing"
INITIALISING_TIMEOUT_S = 60.0
TELLING_TIMEOUT_S = 2.0
# Spark tells of a batch at once; an account that nobody asked for by then is never asked for.
ACCOUNTS_MAX = 1_000


class RunningFlow:
    """Made before its query starts, because the first batch may come before `start` returns."""

    def __init__(self, flow: Flow, folder: FlowFolder, gate: StopGate) -> None:
        self.flow = flow
        self.folder = folder
        self._gate = gate
        self._query: StreamingQuery | None = None
        self._written: dict[int, Written] = {}
        self._raised: Exception | None = None
        self._was_stopped = False
        self._is_stuck = False
        self._is_starting = False
        self._initialised_by = 0.0
        self._patient_until: float | None = None
        self._log = ProgressLog(folder.progress)
        self.last = last_of_checkpoint(folder)

    @property
    def name(self) -> str:
        return self.flow.name

    @property
    def is_active(self) -> bool:
        return self._query is not None and self._query.isActive and not self._is_stuck

    def started(self, query: "StreamingQuery") -> None:
        self._query = query
        self._raised = None
        self._is_starting = True
        self._initialised_by = time.monotonic() + INITIALISING_TIMEOUT_S

    @property
    def is_initialising(self) -> bool:
        """Whether Spark is still starting the Python processes that plan the flow's reads."""
        if not self._is_starting or self._query is None or not self._query.isActive:
            return False
        # Spark is not asked again after that: each question is a call into the JVM.
        message = self._query.status["message"]
        is_in_time = time.monotonic() < self._initialised_by
        self._is_starting = message.startswith(INITIALISING) and is_in_time
        return self._is_starting

    def on_written(self, epoch: Epoch, written: Written) -> None:
        self._written[epoch.batch] = written
        if len(self._written) > ACCOUNTS_MAX:
            del self._written[min(self._written)]

    def on_failed(self, error: Exception) -> None:
        self._raised = error

    def failure(self) -> Failure | None:
        """What ended the query; None while it runs and after a stop."""
        if self._query is None or self._query.isActive or self._was_stopped:
            return None
        error = self._query.exception()
        if error is None or is_stop(self._raised):
            return None
        sentence = sentence_of_query(self._raised or error, self.folder.checkpoint)
        return Failure(sentence=sentence, cause=cause_of(self._raised or error))

    def stop_between_batches(self) -> None:
        """Ends the query unless a batch is under way; asked again and again after a request."""
        if not self.is_active:
            return
        if not is_between_batches(self._gate, self.name, self.folder.checkpoint):
            return
        if self._has_reported() or self._is_patience_over():
            self._stop()

    def _stop(self) -> None:
        """A query that does not even end between batches ends with the session: all is noted."""
        assert self._query is not None
        self._was_stopped = True
        try:
            self._query.stop()
        except spark_refusals():
            self._is_stuck = True

    def _has_reported(self) -> bool:
        """Whether Spark has reported the last batch, which it does after it has noted it."""
        last = self._gate.last_left(self.name)
        return last is None or self._last_batch >= last

    def _is_patience_over(self) -> bool:
        if self._patient_until is None:
            self._patient_until = time.monotonic() + TELLING_TIMEOUT_S
        return time.monotonic() > self._patient_until

    def end(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ends the query after its batch, and waits for that; after a request."""
        if self._query is not None and self._query.isActive:
            self._was_stopped = True
            stop_after_batch(self._query, self._gate, self.name, self.folder.checkpoint, timeout_s)

    def take_progress(self) -> list[BatchProgress]:
        """Batches that have ended since the last call; they are kept in the flow's folder."""
        assert self._query is not None
        found = []
        for spark in _progress_since(self._query._jsq, self._last_batch):
            batch = batch_progress(spark, self._written.pop(spark["batchId"], None))
            batch = with_lag_from(batch, self.last)
            total = self.last.total if self.last is not None else Totals()
            self.last = replace(batch, total=total.plus(batch))
            self._log.append(self.last)
            found.append(self.last)
        return found

    @property
    def _last_batch(self) -> int:
        return self.last.batch if self.last is not None else NO_BATCH


def last_of_checkpoint(folder: FlowFolder) -> BatchProgress | None:
    """The last batch that was kept; None if it belongs to another checkpoint than there is."""
    last = ProgressLog(folder.progress).last()
    return last[0] if last and last[0].query == query_id(folder.checkpoint) else None


def _progress_since(query: Any, batch: int) -> list[dict[str, Any]]:
    """Spark's progress of later batches, asked for with as few calls into the JVM as can be."""
    last = query.lastProgress()
    if last is None or last.batchId() <= batch:
        return []
    if last.batchId() == batch + 1:
        found = [json.loads(last.json())]
    else:
        found = [json.loads(each.json()) for each in query.recentProgress()]
    return [
        each
        for each in found
        if each["batchId"] > batch and not is_idle(each.get("durationMs") or {})
    ]
