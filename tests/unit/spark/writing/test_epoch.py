"""Proves that a task's attempt is named after its micro-batch, its partition and itself."""

import pickle

from penstock.spark.writing.epoch import Epoch, TaskAttempt, task_attempt


class Context:
    def __init__(self, **properties: str) -> None:
        self._properties = {name.replace("_", "."): text for name, text in properties.items()}

    def partitionId(self) -> int:  # noqa: N802
        return 3

    def taskAttemptId(self) -> int:  # noqa: N802
        return 71

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802
        return self._properties.get(key)


def test_a_task_of_a_stream_belongs_to_an_epoch() -> None:
    context = Context(sql_streaming_queryId="e3a1", streaming_sql_batchId="12")
    assert task_attempt(context) == TaskAttempt(
        epoch=Epoch(query_id="e3a1", batch_id=12), partition=3, attempt=71
    )


def test_a_task_of_a_batch_belongs_to_none() -> None:
    assert task_attempt(Context()) == TaskAttempt(epoch=None, partition=3, attempt=71)


def test_an_attempt_travels_to_the_driver() -> None:
    attempt = task_attempt(Context(sql_streaming_queryId="e3a1", streaming_sql_batchId="12"))
    assert pickle.loads(pickle.dumps(attempt)) == attempt


def test_without_a_task_there_is_an_attempt_of_nobody() -> None:
    assert task_attempt(None).epoch is None
