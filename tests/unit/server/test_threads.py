"""Worker threads carry out every job that they were given, and say how each with a future ended."""

import asyncio
import sys
import threading

import pytest

from penstock.server.threads import Threads
from tests.waiting import until

TIMEOUT_S = 10


def test_a_job_with_a_future_says_how_it_ended() -> None:
    with Threads("test", 2) as threads:
        assert threads.submit(divmod, 7, 2).result(TIMEOUT_S) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            threads.submit(divmod, 7, 0).result(TIMEOUT_S)
        # Its thread lives on.
        assert threads.submit(sorted, [2, 1], reverse=False).result(TIMEOUT_S) == [1, 2]


def test_jobs_run_side_by_side_in_threads_with_names() -> None:
    met = threading.Barrier(2)

    def meet() -> str:
        met.wait(TIMEOUT_S)
        return threading.current_thread().name

    with Threads("test", 2) as threads:
        names = {future.result(TIMEOUT_S) for future in [threads.submit(meet) for _ in range(2)]}
    assert names == {"test_0", "test_1"}


def test_the_end_waits_for_all_jobs_and_takes_no_more() -> None:
    done: list[int] = []
    gate = threading.Event()
    threads = Threads("test", 1)
    threads.start(gate.wait, TIMEOUT_S)
    for number in range(100):
        threads.start(done.append, number)
    threads.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="have ended"):
        threads.submit(done.append, -1)
    gate.set()
    threads.shutdown()
    assert done == list(range(100))


def test_a_job_that_nobody_waits_for_any_more_is_left_out() -> None:
    gate = threading.Event()
    done: list[int] = []
    with Threads("test", 1) as threads:
        threads.start(gate.wait, TIMEOUT_S)
        future = threads.submit(done.append, 1)
        assert future.cancel()
        gate.set()
    assert done == []


def test_an_event_loop_can_wait_for_them() -> None:
    async def scenario() -> int:
        with Threads("test", 1) as threads:
            return await asyncio.get_running_loop().run_in_executor(threads, max, 1, 2)

    assert asyncio.run(scenario()) == 2


def test_no_job_is_overlooked_by_threads_that_are_about_to_rest() -> None:
    """Each job is handed over while the threads become idle after the one before it."""
    done: list[int] = []
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with Threads("test", 3) as threads:
            for number in range(2_000):
                threads.submit(done.append, number).result(TIMEOUT_S)
    finally:
        sys.setswitchinterval(interval_s)
    assert done == list(range(2_000))


def test_jobs_of_many_threads_are_all_carried_out() -> None:
    done: list[int] = []

    def hand_over() -> None:
        for number in range(500):
            threads.start(done.append, number)

    with Threads("test", 3) as threads:
        starters = [threading.Thread(target=hand_over) for _ in range(4)]
        for starter in starters:
            starter.start()
        for starter in starters:
            starter.join(TIMEOUT_S)
    assert sorted(done) == sorted(4 * list(range(500)))


async def test_the_thread_that_became_idle_last_takes_the_next_job() -> None:
    with Threads("test", 4) as threads:
        used = set()
        for _ in range(20):
            await until(lambda: len(threads._idle) == 4)
            used.add(threads.submit(threading.get_ident).result(TIMEOUT_S))
    assert len(used) == 1
