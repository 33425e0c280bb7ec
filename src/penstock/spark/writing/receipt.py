"""What a finished task tells the driver, and what the driver says about all of them."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from penstock.spark.writing.epoch import TaskAttempt

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Receipt(WriterCommitMessage):
    """All records of this attempt are acknowledged."""

    attempt: TaskAttempt
    records: int
    record_batches: int


def log_commit(messages: Iterable[WriterCommitMessage | None]) -> None:
    receipts = _receipts(messages)
    records = sum(receipt.records for receipt in receipts)
    _log.info("%d records were written by %d tasks.", records, len(receipts))


def log_abort(messages: Iterable[WriterCommitMessage | None]) -> None:
    """Writing is at least once, so what finished tasks wrote stays; the user should know of it."""
    records = sum(receipt.records for receipt in _receipts(messages))
    if records:
        _log.warning(
            "The write failed, but %d of its records were written to their topics.", records
        )


def _receipts(messages: Iterable[WriterCommitMessage | None]) -> list[Receipt]:
    """Without those of tasks that failed, for which Spark gives None."""
    return [message for message in messages if isinstance(message, Receipt)]
