"""Asking the share coordinator again while it changes, and what to answer if that does not help."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused

# How long the coordinator is asked again.
RETRIED_S_MAX: Final = 5.0
RETRY_PAUSE_S: Final = 0.05

# The coordinator was not there, or it did not begin: what was asked has changed nothing.
NOT_DONE: Final = frozenset(
    {
        Reason.NOT_COORDINATOR,
        Reason.COORDINATOR_NOT_AVAILABLE,
        Reason.COORDINATOR_LOAD_IN_PROGRESS,
        Reason.LEADER_NOT_AVAILABLE,
        Reason.THROTTLED,
    }
)
# What may be over in a moment. An opening may be asked for again whatever became of it.
PASSING: Final = NOT_DONE | {Reason.REQUEST_TIMED_OUT, Reason.FENCED_STATE_EPOCH}


async def retried(
    work: Callable[[], Awaitable[None]], passing: Collection[Reason], clock: Clock
) -> None:
    until = clock.monotonic() + RETRIED_S_MAX
    while True:
        try:
            await work()
        except Refused as refused:
            if refused.reason not in passing or clock.monotonic() >= until:
                raise
            await asyncio.sleep(RETRY_PAUSE_S)
        else:
            return


def as_leader(refused: Refused) -> Refused:
    """In the words of the data partition's leader: which its clients know what to do about."""
    if refused.reason is Reason.FENCED_LEADER_EPOCH:
        return Refused(Reason.NOT_LEADER_OR_FOLLOWER, refused.detail)
    if refused.reason in PASSING:
        return Refused(Reason.COORDINATOR_NOT_AVAILABLE, refused.detail)
    return refused
