"""Ends a query between two of its micro-batches."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipelines.running.checkpoint_folder import last_committed
from penstock.pipelines.running.gate import StopGate, StopRequested

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.05
# A batch may take long, and what it has written must not be left without Spark's note of it.
STOP_TIMEOUT_S = 600.0


def is_between_batches(gate: StopGate, flow: str, checkpoint: Path) -> bool:
    """Whether Spark has noted all that the flow has written; asked after `gate.request()`.

    From then on nothing is written any more, so that a query can be interrupted without a batch
    that is written and not noted. (Even that would do no harm: a restart runs it again, and sinks
    know it by its epoch. But a stop should leave nothing to repeat.)
    """
    if gate.under_way(flow) is not None:
        return False
    written = gate.last_left(flow)
    if written is None:
        return True
    noted = last_committed(checkpoint)
    return noted is not None and noted >= written


def stop_after_batch(
    query: "StreamingQuery",
    gate: StopGate,
    flow: str,
    checkpoint: Path,
    timeout_s: float = STOP_TIMEOUT_S,
) -> None:
    """Let the batch under way end, then end the query; after the time-out interrupt the batch."""
    gate.request()
    deadline = time.monotonic() + timeout_s
    while query.isActive and not is_between_batches(gate, flow, checkpoint):
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    query.stop()


def is_stop(raised: BaseException | None) -> bool:
    """Whether this is how a query ends whose next batch came to a closed gate."""
    return isinstance(raised, StopRequested) or StopRequested.__name__ in str(raised or "")
