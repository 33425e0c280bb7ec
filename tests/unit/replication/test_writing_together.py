"""Many logs that write in the same turn share jobs and a sync of the whole disk."""

import asyncio
import errno
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.replication.write_side import TOGETHER_MIN, FindDisk, WriteSide
from penstock.replication.writer import LogWrite, Writer
from tests.unit.replication.test_writer import Owner
from tests.unit.storage.fault_file_system import FaultFileSystem, FaultWholeDisk
from tests.unit.storage.logs import Bench, batch


class CountingDisk(FaultWholeDisk):
    syncs = 0

    def sync(self) -> None:
        type(self).syncs += 1
        super().sync()


class RefusingDisk(FaultWholeDisk):
    def sync(self) -> None:
        raise OSError(errno.EIO, "Input/output error")


class DeafDisk(FaultWholeDisk):
    """Has not heard of any failure."""

    def sync(self) -> None:
        """Says nothing."""


class Case:
    """Empty logs, each of which writes one record in answer to the same report."""

    def __init__(self, count: int = TOGETHER_MIN) -> None:
        self.disk = FaultFileSystem()
        self.benches = [
            Bench(self.disk, directory=Path("/data/topics/t") / str(number))
            for number in range(count)
        ]
        self.logs = [bench.create() for bench in self.benches]
        self.owners = [Owner() for _ in self.logs]
        CountingDisk.syncs = 0

    async def write(self, find_disk: FindDisk, offset: int = 0) -> None:
        with self._writers(find_disk) as (side, writers):

            def put_all() -> None:
                for writer in writers:
                    writer.put(LogWrite(1, None, None, [batch(offset)], must_sync=True))

            side.report(put_all)
            await asyncio.sleep(0)
            for writer in writers:
                await writer.idle()

    @contextmanager
    def _writers(self, find_disk: FindDisk) -> Iterator[tuple[WriteSide, list[Writer]]]:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(2) as executor:
            side = WriteSide(executor, find_disk=find_disk)
            yield (
                side,
                [
                    Writer(log, owner, loop=loop, side=side, syncs_before_ack=True)
                    for log, owner in zip(self.logs, self.owners, strict=True)
                ],
            )

    def ends_after_power_loss(self) -> set[int]:
        return {
            int(Bench(lost, directory=bench.directory).open().end_offset)
            for lost in (self.disk.after_power_loss(seed) for seed in range(5))
            for bench in self.benches
        }


async def test_many_logs_share_one_sync_and_what_was_reported_survives_a_power_loss() -> None:
    case = Case()
    await case.write(lambda files: CountingDisk(case.disk))
    assert all(owner.numbers == [1] for owner in case.owners)
    assert CountingDisk.syncs == 1
    assert case.ends_after_power_loss() == {1}


async def test_a_log_that_was_synced_with_the_disk_lets_go_of_its_file() -> None:
    case = Case()
    await case.write(lambda files: CountingDisk(case.disk))
    assert not any(log._appender.is_dirty for log in case.logs)


async def test_few_logs_sync_themselves() -> None:
    case = Case(TOGETHER_MIN - 1)
    await case.write(lambda files: CountingDisk(case.disk))
    assert CountingDisk.syncs == 0
    assert all(owner.numbers == [1] for owner in case.owners)
    assert case.ends_after_power_loss() == {1}


async def test_each_log_syncs_itself_if_the_whole_disk_refuses() -> None:
    case = Case()
    await case.write(lambda files: RefusingDisk(case.disk))
    assert all(owner.numbers == [1] for owner in case.owners)
    assert case.ends_after_power_loss() == {1}


@pytest.mark.parametrize("raises", [True, False])
async def test_each_log_writes_and_syncs_itself_where_there_is_no_whole_disk(raises: bool) -> None:
    case = Case()

    def find(files: int) -> None:
        if raises:
            raise OSError(errno.EMFILE, "Too many open files")

    await case.write(find)
    assert all(owner.numbers == [1] for owner in case.owners)
    assert case.ends_after_power_loss() == {1}


async def test_no_write_is_reported_if_nothing_can_be_synced() -> None:
    case = Case()
    case.disk.failing.add("sync")
    await case.write(lambda files: CountingDisk(case.disk))
    assert all(owner.numbers == [] and owner.broken is not None for owner in case.owners)


async def test_a_log_with_older_unsynced_writes_syncs_itself() -> None:
    """The disk may have failed to write them back before it was opened, and would not say so."""
    case = Case()
    for log in case.logs:
        log.append([batch(0)])
    case.disk.failing.add("sync")
    await case.write(lambda files: DeafDisk(case.disk), offset=1)
    assert all(owner.numbers == [] and owner.broken is not None for owner in case.owners)
