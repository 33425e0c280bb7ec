"""Proves that all is read back again and again, within its limits, and that it ends at once."""

import asyncio
from collections.abc import Callable
from os import SEEK_END
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.scrubbing import (
    BYTES_PER_S_MAX,
    PAUSE_S_MAX,
    SHARE_MAX,
    SLICE_BYTES,
    Scrubbing,
)
from penstock.model.errors import Reason, Refused
from penstock.model.limits import MIB
from penstock.model.topic_config import TopicConfig
from penstock.storage.log import Scrubbed
from tests.unit.broker.partition_rig import Node, running
from tests.unit.replication.rig import TOPIC, TOPIC_ID, batch, run

HOUR_S = 3600.0
WEEK_S = 168 * HOUR_S


class Time:
    """Moves when somebody sleeps or reads."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.sleeps: list[float] = []

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        assert 0 <= seconds <= PAUSE_S_MAX
        self.sleeps.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)


class FakeReplica:
    """A log whose offsets are its bytes."""

    def __init__(self, time: Time, size: int, slice_s: float = 0.0) -> None:
        self.partition = "t-0"
        self.size_bytes = size
        self.is_damaged = False
        self.slices: list[tuple[float, int]] = []
        self._time = time
        self._slice_s = slice_s

    async def scrub(self, should_stop: Callable[[], bool], start: int, bytes_max: int) -> Scrubbed:
        assert bytes_max == SLICE_BYTES
        if self.is_damaged:
            raise Refused(Reason.STORAGE_ERROR, "a bit was flipped")
        self._time.now_s += self._slice_s
        size = min(bytes_max, self.size_bytes - start)
        self.slices.append((self._time.now_s, size))
        return Scrubbed(start + size, self.size_bytes, size)

    @property
    def read_bytes(self) -> int:
        return sum(size for _, size in self.slices)


def scrubbing_of(time: Time, replicas: list[FakeReplica], period_s: float = WEEK_S) -> Scrubbing:
    found: Any = replicas
    return Scrubbing(replicas=lambda: found, clock=time, period_s=period_s, sleep=time.sleep)


async def test_the_first_pass_is_soon_and_still_within_the_limit() -> None:
    time = Time()
    replicas = [FakeReplica(time, 300 * MIB), FakeReplica(time, 700 * MIB)]
    begun_s = time.now_s
    await scrubbing_of(time, replicas).run_pass(in_s=0.0)
    assert [replica.read_bytes for replica in replicas] == [300 * MIB, 700 * MIB]
    taken_s = time.now_s - begun_s
    assert 1000 * MIB <= taken_s * BYTES_PER_S_MAX <= 1001 * MIB


async def test_small_batches_take_no_more_than_their_share_of_a_thread() -> None:
    time = Time()
    replica = FakeReplica(time, 50 * MIB, slice_s=0.1)
    begun_s = time.now_s
    await scrubbing_of(time, [replica]).run_pass(in_s=0.0)
    worked_s = 0.1 * len(replica.slices)
    assert worked_s <= (time.now_s - begun_s) * SHARE_MAX * 1.001


@pytest.mark.parametrize("sizes", [[100_000 * MIB], [2_000 * MIB] * 30, [5, 10**6, 40_000 * MIB]])
async def test_a_later_pass_takes_about_the_period(sizes: list[int]) -> None:
    time = Time()
    replicas = [FakeReplica(time, size) for size in sizes]
    begun_s = time.now_s
    await scrubbing_of(time, replicas).run_pass(in_s=WEEK_S)
    assert [replica.read_bytes for replica in replicas] == sizes
    assert 0.9 < (time.now_s - begun_s) / WEEK_S < 1.02


async def test_what_grows_during_a_pass_does_not_hold_it_up() -> None:
    time = Time()
    small, grows = FakeReplica(time, 4_000 * MIB), FakeReplica(time, 1)
    scrubbing = scrubbing_of(time, [small, grows])
    begun_s = time.now_s
    passing = asyncio.ensure_future(scrubbing.run_pass(in_s=WEEK_S))
    while time.now_s - begun_s < WEEK_S / 2:
        await asyncio.sleep(0)
    grows.size_bytes = 50_000 * MIB
    await passing
    assert grows.read_bytes == 50_000 * MIB
    assert (time.now_s - begun_s) / WEEK_S < 1.02


async def test_ten_thousand_idle_partitions_cost_next_to_nothing() -> None:
    time = Time()
    replicas = [FakeReplica(time, 200 if number % 2 else 0) for number in range(10_000)]
    scrubbing = scrubbing_of(time, replicas)
    task = asyncio.ensure_future(scrubbing.run())
    while time.now_s < 1000 + PAUSE_S_MAX:
        await asyncio.sleep(0)
    # The first pass is over: each was read once, and those without a byte not at all.
    assert [len(replica.slices) for replica in replicas] == [0, 1] * 5_000
    time.sleeps.clear()
    begun_s = time.now_s
    while time.now_s < begun_s + 24 * HOUR_S:
        await asyncio.sleep(0)
    slices = sum(len(replica.slices) for replica in replicas) - 5_000
    # A seventh of them in a day: one in two minutes. The rest are looks at their sizes.
    assert 600 < slices < 800
    assert len(time.sleeps) < 6_000
    task.cancel()


async def test_one_damaged_log_does_not_hold_up_the_others() -> None:
    time = Time()
    damaged, sound = FakeReplica(time, MIB), FakeReplica(time, MIB)
    damaged.is_damaged = True
    await scrubbing_of(time, [damaged, sound]).run_pass(in_s=0.0)
    assert sound.read_bytes == MIB


async def test_it_can_be_turned_off() -> None:
    time = Time()
    replica = FakeReplica(time, MIB)
    await scrubbing_of(time, [replica], period_s=0.0).run()
    assert replica.slices == []


# On a disk


async def filled(node: Node) -> Path:
    """The first segment of a partition with several."""
    await node.create(TOPIC, TOPIC_ID, range(1), TopicConfig(segment_bytes=200))
    (replica,) = node.partitions.all()
    for _ in range(6):
        replica.append(batch(b"x" * 100))
        await replica.committed()
    return min(node.directory.partition_directory(TOPIC_ID, 0).glob("*.log"))


def flip_bit(segment: Path, place: int) -> None:
    """In place: a file that is written again is empty for a moment."""
    with segment.open("r+b") as file:
        file.seek(place, SEEK_END)
        (byte,) = file.read(1)
        file.seek(place, SEEK_END)
        file.write(bytes([byte ^ 4]))


def test_a_bit_that_flips_after_the_start_is_found_by_a_later_pass(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node:
            segment = await filled(node)
            (replica,) = node.partitions.all()
            await node.disk.idle()
            time, passes, busy_pauses = Time(), 0, 0

            def replicas() -> list[Any]:
                nonlocal passes
                passes += 1
                return [replica]

            async def sleep(seconds: float) -> None:
                nonlocal busy_pauses
                busy_pauses += node.disk.is_busy
                await time.sleep(seconds)

            scrubbing = Scrubbing(replicas=replicas, clock=time, period_s=HOUR_S, sleep=sleep)
            task = asyncio.ensure_future(scrubbing.run())
            while passes < 3:
                await asyncio.sleep(0.001)
            assert replica.stopped_because is None
            flip_bit(segment, -10)
            while replica.stopped_because is None:
                await asyncio.sleep(0.001)
            assert segment.name in str(replica.stopped_because)
            assert busy_pauses == 0, "anyone who pauses holds no thread of the disk"
            task.cancel()

    run(scenario)


async def test_a_slice_ends_at_the_next_batch_when_the_node_stops(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await filled(node)
        (replica,) = node.partitions.all()
        scrubbing = Scrubbing(replicas=lambda: [replica], clock=node.clock, period_s=HOUR_S)
        scrubbing.stop()
        found = await replica.scrub(lambda: scrubbing._is_stopping, 0, MIB)  # type: ignore[arg-type]
        assert (found.offset, found.size) == (0, 0)
        await scrubbing.run_pass(in_s=0.0)
