"""How far a queue is in one partition, as operators and clients see it."""

from dataclasses import dataclass
from typing import Final

from penstock.queues.commands import WAITING_MAX
from penstock.queues.decisions import QueueSummary
from penstock.queues.records import UNRESOLVED

UNKNOWN_LAG: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOffset:
    """How far a group has come with a partition."""

    # The first offset that is not done with; -1 while nobody has polled it.
    start: int
    leader_epoch: int
    # Records that are not done with; -1 where that is not known.
    lag: int
    # Behind the start.
    delivery_complete_count: int
    # On their way to the dead-letter topic, arrived there, and brought back from it.
    dying_count: int = 0
    sent_count: int = 0
    redriven_count: int = 0
    # Why they are still on their way, if something is wrong.
    trouble: str = ""
    # What an operator should know of it, if anything.
    note: str = ""


def queue_offset(summary: QueueSummary | None, end: int, trouble: str) -> QueueOffset:
    if summary is None or summary.start == UNRESOLVED:
        term = -1 if summary is None else summary.term
        return QueueOffset(
            start=UNRESOLVED, leader_epoch=term, lag=UNKNOWN_LAG, delivery_complete_count=0
        )
    left = end - summary.start - summary.done_count
    return QueueOffset(
        start=summary.start,
        leader_epoch=summary.term,
        lag=UNKNOWN_LAG if end < 0 else max(0, left),
        delivery_complete_count=summary.done_count,
        dying_count=summary.dying_count,
        sent_count=summary.letters.sent_count,
        redriven_count=summary.letters.redriven_count,
        trouble=trouble,
        note=_full(summary) if summary.waiting_count >= WAITING_MAX else "",
    )


def _full(summary: QueueSummary) -> str:
    return (
        f"{summary.waiting_count} records wait for their time or for an earlier one, and the limit"
        f" is {WAITING_MAX}: nothing new is delivered until there are fewer"
    )
