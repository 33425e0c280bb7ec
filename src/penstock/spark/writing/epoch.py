"""Who writes: the name of a task's attempt, and of the micro-batch that it belongs to.

Writing is at least once: an attempt that fails leaves what it had sent, and the next one sends all
rows again. These names are what makes it possible to do better. All attempts of a micro-batch, also
those after a restart from the checkpoint, carry the same epoch, and no two attempts carry the
same number; so records can be staged under (query, batch, partition, attempt), and the attempts
that the driver is told of can be published once per epoch.
"""

from dataclasses import dataclass
from typing import Protocol

# Spark sets these for every task of a streaming query; the first outlives restarts of the query.
QUERY_ID_PROPERTY = "sql.streaming.queryId"
BATCH_ID_PROPERTY = "streaming.sql.batchId"


class TaskContextLike(Protocol):
    """The part of pyspark's TaskContext that names an attempt."""

    def partitionId(self) -> int: ...  # noqa: N802
    def taskAttemptId(self) -> int: ...  # noqa: N802
    def getLocalProperty(self, key: str) -> str | None: ...  # noqa: N802


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One micro-batch of one streaming query."""

    query_id: str
    batch_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttempt:
    """One attempt at one partition of the DataFrame; `epoch` is None outside of streams.

    `attempt` is unique among all tasks of a Spark application, also among speculative ones and
    those of a stage that runs again, which Spark's count of attempts is not.
    """

    epoch: Epoch | None
    partition: int
    attempt: int


def task_attempt(context: TaskContextLike | None) -> TaskAttempt:
    """The attempt that this process is running; without a task (in tests) an attempt of nobody."""
    if context is None:
        return TaskAttempt(epoch=None, partition=0, attempt=0)
    query_id = context.getLocalProperty(QUERY_ID_PROPERTY)
    batch_id = context.getLocalProperty(BATCH_ID_PROPERTY)
    has_epoch = query_id is not None and batch_id is not None
    return TaskAttempt(
        epoch=Epoch(query_id=str(query_id), batch_id=int(str(batch_id))) if has_epoch else None,
        partition=context.partitionId(),
        attempt=context.taskAttemptId(),
    )
