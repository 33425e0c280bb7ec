"""The queue of one log: what happens to those who want to write to a log that is broken."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.ids import LogIndex, Offset
from penstock.replication.write_side import WriteSide
from penstock.replication.writer import Checkpointer, LogWrite, Writer
from penstock.storage.log import Log
from tests.unit.storage.fault_file_system import FaultFileSystem
from tests.unit.storage.logs import Bench, batch, fill


class Owner:
    def __init__(self) -> None:
        self.broken: Exception | None = None
        self.numbers: list[int] = []

    def checkpoint_state(self) -> tuple[Callable[[], bytes], Offset]:
        return bytes, Offset(0)

    def before_reset(self) -> None: ...

    def written(self, number: int) -> None:
        self.numbers.append(number)

    def write_failed(self, error: OSError) -> None:
        raise AssertionError("it must not be tried again") from error

    def log_broken(self, error: Exception) -> Refused:
        self.broken = error
        return Refused(Reason.STORAGE_ERROR, "broken")


def replaced(log: Log, index: int) -> LogWrite:
    """What a new leader has in the place of everything from `index` on."""
    offset = log.offset_after(LogIndex(index - 1))
    return LogWrite(1, None, index, [batch(offset)], must_sync=False)


async def test_a_cut_that_fails_half_way_breaks_the_log_and_nothing_is_written_any_more() -> None:
    """Tried again, it would take the log for cut, and write beside what is still there."""
    disk = FaultFileSystem()
    log = Bench(disk).create()
    fill(log, 20)
    owner = Owner()
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as executor:
        writer = Writer(
            log,
            owner,
            loop=loop,
            side=WriteSide(executor),
            syncs_before_ack=True,
        )
        disk.failing.add("sync")
        writer.put(replaced(log, 12))
        await writer.idle()
        disk.failing.clear()
        assert owner.broken is not None

        def chore(checkpoint: Checkpointer) -> None:
            checkpoint()

        with pytest.raises(Refused, match="broken"):
            await writer.exclusively(chore)
        writer.sync_soon()
        writer.put(replaced(log, 12))
        await writer.idle()
    assert owner.numbers == []
    assert Bench(disk.after_kill()).open().end_offset in (11, 20)
