"""Waits for what other processes, threads and tasks do: for the event, never for a time.

The limits only end what hangs, however busy the machine is.
"""

import asyncio
import time
from collections.abc import Callable

WAIT_S_MAX = 180.0
POLL_S = 0.05
TURN_S = 0.005
TURNS_S_MAX = 60.0


def wait_until(what: str, condition: Callable[[], object], timeout_s: float = WAIT_S_MAX) -> float:
    """Returns how long it took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() < started + timeout_s, f"{what} did not happen in {timeout_s} s"
        time.sleep(POLL_S)
    return time.monotonic() - started


async def until(condition: Callable[[], object], timeout_s: float | None = None) -> None:
    """Returns in the turn in which the condition holds, so that it still does then."""
    async with asyncio.timeout(TURNS_S_MAX if timeout_s is None else timeout_s):
        while not condition():
            await asyncio.sleep(TURN_S)
