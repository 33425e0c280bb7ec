"""Simulated processes do what asyncio and an operating system promise, and die when told."""

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pytest

from penstock.model.ids import BrokerId
from tests.sim.machine.bugs import bugs_fail
from tests.sim.machine.garbage import own_garbage_only
from tests.sim.machine.process import Machine
from tests.sim.machine.wire import Switch
from tests.sim.machine.world import World
from tests.unit.storage.fault_file_system import PowerLoss

DIRECTORY = Path("/data")
FILE = DIRECTORY / "file"


def machine(seed: int = 1) -> Machine:
    world = World(Random(seed))
    return Machine(world, Switch(world), BrokerId(1))


def finish(one: Machine, coroutine: Coroutine[Any, Any, Any]) -> Any:
    assert one.process is not None
    task = one.process.spawn(coroutine)
    assert one.world.run_until(task.done, 60.0)
    return task.result()


def test_time_passes_only_when_nothing_else_is_to_be_done() -> None:
    one = machine()
    process = one.start()

    async def sleeper() -> float:
        before = process.clock.monotonic()
        await asyncio.sleep(10)
        return process.clock.monotonic() - before

    assert 10 <= finish(one, sleeper()) < 10.01


def test_asyncio_s_own_tools_work() -> None:
    one = machine()
    one.start()

    async def work() -> list[object]:
        seen: list[object] = []
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(1, event.set)
        await event.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 2)
        seen.append(await asyncio.to_thread(lambda: "from a thread"))
        async with asyncio.timeout(1), asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(asyncio.sleep(0.1)).add_done_callback(
                    lambda _, n=number: seen.append(n)
                )
        return seen

    assert finish(one, work()) == ["from a thread", 0, 1, 2]


def test_callbacks_run_in_the_order_in_which_they_were_asked_for() -> None:
    one = machine()
    process = one.start()
    seen: list[int] = []
    for number in range(10):
        process.loop.call_soon(seen.append, number)
    one.world.run_for(1)
    assert seen == list(range(10))


def test_jobs_of_several_threads_overlap_and_those_of_one_do_not() -> None:
    orders = set()
    for seed in range(20):
        one = machine(seed)
        process = one.start()
        seen: list[int] = []
        for executor, wanted in ((process.executor(1), False), (process.executor(4), True)):
            seen.clear()
            for number in range(4):
                executor.submit(seen.append, number)
            one.world.run_for(1)
            assert sorted(seen) == [0, 1, 2, 3]
            if wanted:
                orders.add(tuple(seen))
            else:
                assert seen == [0, 1, 2, 3]
    assert len(orders) > 3


def test_an_error_that_nobody_handles_fails_the_run() -> None:
    one = machine()
    process = one.start()
    process.loop.call_soon(lambda: 1 / 0)
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        one.world.run_for(1)


def test_nothing_of_a_dead_process_runs_on() -> None:
    one = machine()
    process = one.start()
    seen: list[str] = []

    async def work() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                seen.append("alive")
        finally:
            process.drive.create(FILE)

    process.spawn(work())
    process.loop.call_later(5, seen.append, "late")
    one.world.run_for(2.5)
    one.crash(lost_power=False)
    one.world.run_for(10)
    assert seen == ["alive", "alive"]
    assert not one.drive.exists(FILE)


def test_a_paused_process_goes_on_where_it_was() -> None:
    one = machine()
    process = one.start()
    moments: list[float] = []
    for second in (1, 2, 3):
        process.loop.call_later(second, lambda: moments.append(one.world.now))
    one.world.run_for(1.5)
    process.loop.pause(10)
    one.world.run_for(20)
    assert moments[0] < 1.5
    assert all(11.5 <= moment < 12 for moment in moments[1:])


def _write(one: Machine) -> None:
    one.drive.make_directory(DIRECTORY)
    one.drive.sync_directory(DIRECTORY.parent)
    file = one.drive.create(FILE)
    one.drive.sync_directory(DIRECTORY)
    file.pwrite(b"synced", 0)
    file.sync()
    file.pwrite(b" not synced", 6)


def test_a_kill_keeps_what_was_written_and_a_power_loss_what_was_synced() -> None:
    found = set()
    for seed in range(30):
        one = machine(seed)
        one.start()
        _write(one)
        one.crash(lost_power=seed % 2 == 0)
        content = one.drive.read(FILE)
        assert content.startswith(b"synced")
        found.add((seed % 2 == 0, content))
    assert {content for lost, content in found if not lost} == {b"synced not synced"}
    assert len({content for lost, content in found if lost}) > 3


def test_a_death_in_the_middle_of_a_write_leaves_a_part_of_it() -> None:
    one = machine()
    process = one.start()
    executor = process.executor(1)
    one.crash_in_a_write(3, lost_power=False)
    executor.submit(_write, one)
    one.world.run_for(1)
    assert one.process is None
    assert one.drive.read(FILE) == b""
    one.start()
    one.crash_in_a_write(0, lost_power=False)
    with pytest.raises(PowerLoss):
        one.drive.open(FILE).pwrite(b"0123456789", 0)
    one.world.run_for(1)
    assert one.drive.read(FILE) == b"01234"


def test_the_same_seed_gives_the_same_order() -> None:
    def trace(seed: int) -> list[object]:
        one = machine(seed)
        process = one.start()
        seen: list[object] = []
        executor = process.executor(3)
        for number in range(20):
            executor.submit(lambda n=number: seen.append((n, one.world.now)))
        one.world.run_for(1)
        return seen

    assert trace(5) == trace(5)
    assert trace(5) != trace(6)


def test_an_error_in_a_job_that_nobody_waits_for_fails_the_run() -> None:
    one = machine()
    process = one.start()
    process.executor(1).submit(lambda: 1 / 0)
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        one.world.run_for(1)


def test_an_error_in_a_job_reaches_whoever_waits_for_it() -> None:
    one = machine()
    process = one.start()

    async def work() -> None:
        with pytest.raises(ZeroDivisionError):
            await process.loop.run_in_executor(None, lambda: 1 / 0)

    finish(one, work())


def test_a_job_that_was_given_up_before_it_began_never_runs() -> None:
    one = machine()
    process = one.start()
    seen: list[str] = []

    async def work() -> None:
        executor = process.executor(1)
        first = process.loop.run_in_executor(executor, seen.append, "first")
        process.loop.run_in_executor(executor, seen.append, "second").cancel()
        await first

    finish(one, work())
    one.world.run_for(1)
    assert seen == ["first"]


def test_there_is_a_running_loop_in_callbacks_and_none_in_jobs_or_after_a_death() -> None:
    one = machine()
    process = one.start()
    seen: list[object] = []

    def look() -> None:
        try:
            seen.append(asyncio.get_running_loop())
        except RuntimeError:
            seen.append(None)

    async def work() -> None:
        look()
        await process.loop.run_in_executor(None, look)
        look()
        try:
            await asyncio.sleep(60)
        finally:
            look()

    process.spawn(work())
    one.world.run_for(1)
    one.world.after(0.5, lambda: one.crash(lost_power=False))
    process.loop.call_later(0.5, lambda: None)
    one.world.run_for(1)
    look()
    assert seen == [process.loop, None, process.loop, None, None]


def test_an_error_in_garbage_is_noticed_at_the_latest_at_the_end_of_the_run() -> None:
    one = machine()
    process = one.start()

    async def work() -> None:
        future = process.loop.create_future()
        future.set_exception(ValueError("nobody looked"))
        knot: list[object] = [future]
        knot.append(knot)

    def run() -> None:
        with own_garbage_only(), bugs_fail(one.world):
            finish(one, work())

    with pytest.raises(AssertionError, match="nobody looked"):
        run()


def test_what_other_threads_log_is_no_bug_of_the_run() -> None:
    """They may be left from other tests."""
    one = machine()

    def log() -> None:
        logger = logging.getLogger("penstock.elsewhere")
        logger.error("it failed", exc_info=ValueError("of another test"))

    with bugs_fail(one.world):
        thread = Thread(target=log)
        thread.start()
        thread.join()
    with pytest.raises(AssertionError, match="of another test"), bugs_fail(one.world):
        log()


def test_a_disk_that_answers_late_has_done_what_it_was_asked_for() -> None:
    one = machine()
    process = one.start()
    process.drive.make_directory(DIRECTORY)
    one.disk_hangs_until, one.disk_answers_late = 10.0, True

    async def write() -> float:
        await asyncio.to_thread(process.drive.create, FILE)
        return one.world.now

    writing = process.spawn(write())
    one.world.run_for(5.0)
    assert process.drive.exists(FILE)
    assert not writing.done()
    assert one.world.run_until(writing.done, 10.0)
    assert writing.result() >= one.disk_hangs_until
