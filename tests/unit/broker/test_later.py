"""Proves that an answer that comes later lets go of whatever waited for it."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from penstock.broker.later import Later


class Waiting:
    """As a call of a connection: it knows its answer, and the answer knows it."""

    later: Later[Any]


@pytest.mark.parametrize("end", ["settle", "fail", "cancel"])
def test_an_answer_and_what_waits_for_it_are_no_work_for_the_garbage_collector(end: str) -> None:
    heard: list[Waiting] = []
    waiting, later = Waiting(), Later[int]()
    waiting.later = later
    later.then(lambda argument, _: heard.append(argument), waiting)
    gone = weakref.ref(waiting)
    gc.disable()
    try:
        if end == "settle":
            later.settle(1)
        elif end == "fail":
            later.fail(ValueError())
        else:
            later.cancel()
        assert heard == ([] if end == "cancel" else [waiting])
        heard.clear()
        del waiting, later
        assert gone() is None
    finally:
        gc.enable()


async def test_an_answer_is_dropped_if_the_one_who_waits_goes_away_in_the_same_turn() -> None:
    dropped: list[int] = []

    class Held(Later[int]):
        def drop(self, answer: int) -> None:
            dropped.append(answer)

    later = Held()

    async def wait() -> int:
        return await later

    waiting = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    later.settle(7)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert dropped == [7]
