"""Proves that the write side reports every job, in order and as few times as possible."""

import asyncio
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Thread
from typing import Any

from penstock.replication.write_side import WriteSide
from tests.waiting import until

THREADS = 4
REPORTS = 2_000


async def test_reports_of_many_threads_all_arrive_in_the_order_of_each_thread() -> None:
    heard: dict[int, list[int]] = {number: [] for number in range(THREADS)}
    with ThreadPoolExecutor(THREADS) as executor:
        side = WriteSide(executor)

        def work(number: int) -> None:
            for count in range(REPORTS):
                side.report(heard[number].append, count)

        for number in range(THREADS):
            side.start(work, number)
        await until(lambda: all(len(each) == REPORTS for each in heard.values()))
    assert all(each == list(range(REPORTS)) for each in heard.values())


async def test_what_is_done_while_the_loop_is_busy_is_reported_in_one_call() -> None:
    loop = asyncio.get_running_loop()
    calls: list[Any] = []
    heard: list[int] = []
    with ThreadPoolExecutor(THREADS) as executor:
        side = WriteSide(executor)
        side._loop = _Counting(loop, calls)  # type: ignore[assignment]
        # This blocks the loop, as a turn with much to do would.
        wait([executor.submit(side.report, heard.append, number) for number in range(50)])
        await until(lambda: len(heard) == 50)
    # Two threads may ask at the same moment.
    assert len(calls) <= THREADS


class _Counting:
    def __init__(self, loop: asyncio.AbstractEventLoop, calls: list[Any]) -> None:
        self._loop = loop
        self._calls = calls

    def call_soon_threadsafe(self, callback: Any) -> None:
        self._calls.append(callback)
        self._loop.call_soon_threadsafe(callback)


async def test_a_report_that_raises_does_not_silence_the_others() -> None:
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    heard: list[str] = []

    def breaks() -> None:
        raise ValueError("a bug")

    with ThreadPoolExecutor(1) as executor:
        side = WriteSide(executor)

        def work() -> None:
            side.report(heard.append, "before")
            side.report(breaks)
            side.report(heard.append, "after")

        thread = Thread(target=work)
        thread.start()
        thread.join()
        await until(lambda: len(heard) == 2)
    assert heard == ["before", "after"]
    assert isinstance(problems[0]["exception"], ValueError)


async def test_what_is_to_be_done_soon_follows_all_reports_and_comes_before_the_next_turn() -> None:
    loop = asyncio.get_running_loop()
    problems: list[Any] = []
    loop.set_exception_handler(lambda _, context: problems.append(context))
    heard: list[str] = []

    def breaks() -> None:
        raise ValueError("a bug")

    with ThreadPoolExecutor(1) as executor:
        side = WriteSide(executor)

        def reported(name: str) -> None:
            heard.append(name)
            loop.call_soon(heard.append, "next turn")
            side.soon(breaks)
            side.soon(lambda: heard.append(f"after {name}"))

        wait([executor.submit(side.report, reported, name) for name in ("one", "two")])
        await until(lambda: len(heard) == 6)
        assert heard == ["one", "two", "after one", "after two", "next turn", "next turn"]
        assert len(problems) == 2
        # Where no report is being taken, the next turn is soon enough.
        side.soon(lambda: heard.append("later"))
        assert heard[-1] != "later"
        await until(lambda: heard[-1] == "later")
