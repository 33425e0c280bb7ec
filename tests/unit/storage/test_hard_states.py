"""Terms and votes: what was flushed is never forgotten, and damage is never taken for a crash."""

import errno
import logging
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from penstock.model.errors import StorageDamaged
from penstock.model.ids import PartitionId, PartitionIndex, TopicId
from penstock.records.checksum import crc32c
from penstock.storage import hard_states
from penstock.storage.file_system import AnyPath, SyncFailed
from penstock.storage.hard_state_blocks import MARK, MARK_1, PAGE_BYTES
from penstock.storage.hard_states import HardStates, StoredHardState, read_hard_states
from tests.unit.storage.fault_file_system import FaultFile, FaultFileSystem, PowerLoss

PATH = Path("/data/hard_states")


def group(topic: int, partition: int = 0) -> PartitionId:
    return PartitionId(TopicId(UUID(int=topic)), PartitionIndex(partition))


def new_disk() -> FaultFileSystem:
    disk = FaultFileSystem()
    for parent in disk.make_directory(PATH.parent):
        disk.sync_directory(parent)
    return disk


def reopened(disk: FaultFileSystem, seed: int = 0) -> HardStates:
    return HardStates.open(PATH, file_system=disk.after_power_loss(seed))


def test_what_was_flushed_survives_and_what_was_not_may_not() -> None:
    disk = new_disk()
    states = HardStates.open(PATH, file_system=disk)
    assert states.get(group(1)) is None
    voted = StoredHardState(3, 2, "directory of node 2")
    states.put(group(1), voted)
    states.put(group(1, 1), StoredHardState(0))
    states.flush()
    states.put(group(1), StoredHardState(4))
    assert states.get(group(1)) == StoredHardState(4)
    again = reopened(disk)
    assert again.get(group(1)) == voted
    assert again.get(group(1, 1)) == StoredHardState(0)
    gone = voted._replace(is_gone=True)
    again.put(group(1), gone)
    again.flush()
    assert HardStates.open(PATH, file_system=again._file_system).get(group(1)) == gone  # type: ignore[attr-defined]


def test_a_flush_is_one_write_and_one_sync() -> None:
    disk = new_disk()
    states = HardStates.open(PATH, file_system=disk)
    for number in range(1000):
        states.put(group(number), StoredHardState(1))
    before = disk.steps
    states.flush()
    assert disk.steps - before == 2
    states.flush()
    assert disk.steps - before == 2


def test_a_topic_is_forgotten_and_only_that() -> None:
    disk = new_disk()
    states = HardStates.open(PATH, file_system=disk)
    for topic in (1, 2):
        for partition in range(3):
            states.put(group(topic, partition), StoredHardState(topic))
    states.flush()
    states.put(group(1, 3), StoredHardState(9))
    states.forget_topic(group(1).topic_id)
    states.flush()
    for found in (states, reopened(disk)):
        assert all(found.get(group(1, partition)) is None for partition in range(4))
        assert all(found.get(group(2, partition)) for partition in range(3))


def test_a_file_that_grew_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hard_states, "REWRITE_BYTES_MIN", 20 * PAGE_BYTES)
    disk = new_disk()
    states = HardStates.open(PATH, file_system=disk)
    sizes = []
    for term in range(200):
        states.put(group(term % 3), StoredHardState(term, 1, "a directory"))
        states.flush()
        sizes.append(disk.size(PATH))
    assert max(sizes) == 18 * PAGE_BYTES
    again = reopened(disk)
    assert [again.get(group(number)) for number in range(3)] == [
        StoredHardState(term, 1, "a directory") for term in (198, 199, 197)
    ]


def test_a_full_disk_keeps_what_is_pending_for_the_next_flush() -> None:
    disk = new_disk()
    states = HardStates.open(PATH, file_system=disk)
    states.put(group(1), StoredHardState(1))
    states.flush()
    disk.bytes_max = disk.size(PATH) + 30
    states.put(group(1), StoredHardState(2, 1, "somewhere" * 20))
    with pytest.raises(OSError, match="No space") as failed:
        states.flush()
    assert not isinstance(failed.value, SyncFailed)
    assert reopened(disk).get(group(1)) == StoredHardState(1)
    disk.bytes_max = None
    states.put(group(1), StoredHardState(2))
    states.flush()
    for seed in range(5):
        assert reopened(disk, seed).get(group(1)) == StoredHardState(2)


def test_a_failed_sync_is_told_apart() -> None:
    disk = new_disk()
    states = HardStates.open(PATH, file_system=disk)
    states.put(group(1), StoredHardState(1))
    disk.failing.add("sync")
    with pytest.raises(SyncFailed):
        states.flush()


@pytest.mark.parametrize("chance", range(10))
def test_what_a_failed_sync_lost_is_durable_before_the_next_process_uses_it(chance: int) -> None:
    disk = new_disk()
    disk.chance = Random(chance)
    failed = HardStates.open(PATH, file_system=disk)
    failed.put(group(1), StoredHardState(3, 2, "voted for"))
    disk.failing.add("sync")
    with pytest.raises(SyncFailed):
        failed.flush()
    disk.failing.clear()
    found = HardStates.open(PATH, file_system=disk).get(group(1))
    assert found == StoredHardState(3, 2, "voted for")
    for seed in range(20):
        assert reopened(disk, seed).get(group(1)) == found


def test_a_rewrite_that_may_have_happened_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that is open has no name any more: what is written to it would be lost."""
    disk = new_disk()
    states = HardStates.open(PATH, file_system=disk)
    for term in range(20):
        states.put(group(1), StoredHardState(term))
        states.flush()
    monkeypatch.setattr(hard_states, "REWRITE_BYTES_MIN", 16 * PAGE_BYTES)
    states.put(group(1), StoredHardState(20))
    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_directory", failing_sync)
        with pytest.raises(OSError, match="Input/output"):
            states.flush()
    # This many groups that by itself no rewrite is due.
    for number in range(2, 30):
        states.put(group(number), StoredHardState(20))
    states.flush()
    again = HardStates.open(PATH, file_system=disk.after_kill())
    assert [again.get(group(number)) for number in range(1, 30)] == [StoredHardState(20)] * 29


def failing_sync(path: Path) -> None:
    raise OSError(errno.EIO, "Input/output error", str(path))


def test_every_crash_leaves_what_was_flushed_or_what_was_being(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hard_states, "REWRITE_BYTES_MIN", 16 * PAGE_BYTES)
    for steps in range(1000):
        disk = new_disk()
        disk.steps_left = steps
        flushed = asked = -1
        try:
            states = HardStates.open(PATH, file_system=disk)
            for term in range(20):
                states.put(group(term % 2), StoredHardState(term, term, "d" * (term % 5)))
                asked = term
                states.flush()
                flushed = term
        except PowerLoss:
            pass
        for disk_found in (disk.after_kill(), *(disk.after_power_loss(s) for s in range(3))):
            again = HardStates.open(PATH, file_system=disk_found)
            newest = max(
                (state.term for n in range(2) if (state := again.get(group(n)))), default=-1
            )
            assert flushed <= newest <= asked
        if flushed == 19:
            assert steps > 40
            return
    raise AssertionError("it never came to the end")


def states_with_votes(disk: FaultFileSystem, terms: int = 5) -> HardStates:
    states = HardStates.open(PATH, file_system=disk)
    for term in range(1, terms + 1):
        states.put(group(term), StoredHardState(term, 2, "voted for"))
        states.flush()
    return states


def all_of(states: HardStates) -> dict[PartitionId, StoredHardState]:
    return states._states


def test_a_bad_copy_is_replaced_by_its_twin_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    before = all_of(states_with_votes(disk))
    last = disk.size(PATH) - 2 * PAGE_BYTES
    disk.damage(PATH, last + 10)
    with caplog.at_level(logging.WARNING):
        assert all_of(HardStates.open(PATH, file_system=disk)) == before
    assert f"{PATH} is rewritten: {PAGE_BYTES} bytes from byte {last} on" in caplog.text
    # From now on it could lose another copy.
    disk.damage(PATH, 10)
    again = HardStates.open(PATH, file_system=disk)
    assert all_of(again) == before
    again.put(group(9), StoredHardState(9))
    again.flush()
    assert all_of(reopened(disk)) == {**before, group(9): StoredHardState(9)}


def test_a_torn_end_is_cut_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    before = dict(all_of(states_with_votes(disk)))
    end = disk.size(PATH)
    disk.inode(PATH).change(end, b"PNHS and not much more")
    with caplog.at_level(logging.WARNING):
        states = HardStates.open(PATH, file_system=disk)
    assert f"the end of {PATH} is cut: 22 bytes from byte {end} on" in caplog.text
    assert all_of(states) == before
    assert disk.size(PATH) == end
    states.put(group(9), StoredHardState(9))
    states.flush()
    for seed in range(5):
        assert all_of(reopened(disk, seed)) == {**before, group(9): StoredHardState(9)}


def test_two_bad_copies_are_a_loss_and_the_rest_is_kept() -> None:
    for block in range(6):
        disk = new_disk()
        before = all_of(states_with_votes(disk))
        position = block * 2 * PAGE_BYTES
        disk.damage(PATH, position + 22)
        disk.damage(PATH, position + PAGE_BYTES + 20)
        with pytest.raises(StorageDamaged) as caught:
            HardStates.open(PATH, file_system=disk)
        assert (caught.value.path, caught.value.position) == (str(PATH), position)
        found = read_hard_states(PATH, file_system=disk)
        assert [lost.position for lost in found.lost] == [position]
        kept = {key: state for key, state in before.items() if state.term != block}
        assert found.states == kept


class UnreadablePage(FaultFileSystem):
    """One page of the file gives an error when it is read."""

    bad = -1

    def read(self, path: AnyPath) -> bytes:
        if self.bad >= 0:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return super().read(path)

    def open(self, path: Path) -> FaultFile:
        disk, file = self, super().open(path)

        class File(FaultFile):
            def pread(self, length: int, position: int) -> bytes:
                if position <= disk.bad < position + length:
                    raise OSError(errno.EIO, "Input/output error", str(path))
                return super().pread(length, position)

        return File(self, file._inode)


def test_a_page_that_cant_be_read_loses_nothing() -> None:
    disk = UnreadablePage()
    for parent in disk.make_directory(PATH.parent):
        disk.sync_directory(parent)
    before = all_of(states_with_votes(disk))
    for page in range(0, disk.size(PATH), PAGE_BYTES):
        disk.bad = page
        found = read_hard_states(PATH, file_system=disk)
        assert (found.states, found.lost) == (before, [])
        assert [saved.position for saved in found.blocks.saved] == [disk.bad]


VERSION_1_RECORD = (
    b"\x01" + UUID(int=7).bytes + b"\0\0\0\x03" + b"\0\0\0\0\0\0\0\x09" + b"\0\0\0\x02\0\0\x05there"
)


def test_a_file_of_version_1_is_read_and_rewritten() -> None:
    record = VERSION_1_RECORD
    block = len(record).to_bytes(4, "big") + crc32c(record).to_bytes(4, "big") + record
    for steps in range(20):
        disk = new_disk()
        disk.write_atomically(PATH, MARK_1 + block)
        disk.steps_left = steps
        try:
            states = HardStates.open(PATH, file_system=disk)
        except PowerLoss:
            states = reopened(disk, steps)
        assert all_of(states) == {group(7, 3): StoredHardState(9, 2, "there")}
        if disk.steps_left >= 0:
            assert disk.read(PATH).startswith(MARK)
            return
    raise AssertionError("it never came to the end")
