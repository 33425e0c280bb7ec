"""Terms and votes: what was flushed is never forgotten, and damage is never taken for a crash."""

import errno
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import StorageDamaged
from penstock.model.ids import PartitionId, PartitionIndex, TopicId
from penstock.storage import hard_states
from penstock.storage.file_system import SyncFailed
from penstock.storage.hard_states import HardStates, StoredHardState
from tests.unit.storage.fault_file_system import FaultFileSystem, PowerLoss

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
    monkeypatch.setattr(hard_states, "REWRITE_BYTES_MIN", 2000)
    disk = new_disk()
    states = HardStates.open(PATH, file_system=disk)
    sizes = []
    for term in range(200):
        states.put(group(term % 3), StoredHardState(term, 1, "a directory"))
        states.flush()
        sizes.append(disk.size(PATH))
    assert max(sizes) < 2100
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


def test_what_a_killed_process_left_unsynced_is_durable_before_it_is_used() -> None:
    disk = new_disk()
    killed = HardStates.open(PATH, file_system=disk)
    killed.put(group(1), StoredHardState(3, 2, "voted for"))
    disk.failing.add("sync")
    with pytest.raises(SyncFailed):
        killed.flush()
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
    monkeypatch.setattr(hard_states, "REWRITE_BYTES_MIN", 400)
    states.put(group(1), StoredHardState(20))
    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_directory", failing_sync)
        with pytest.raises(OSError, match="Input/output"):
            states.flush()
    # So many groups that by itself no rewrite is due.
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
    monkeypatch.setattr(hard_states, "REWRITE_BYTES_MIN", 400)
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


@settings(deadline=None)
@given(position=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_damage_unless_it_is_in_the_last_block(position: int, bit: int) -> None:
    disk = new_disk()
    states = HardStates.open(PATH, file_system=disk)
    for term in range(1, 6):
        states.put(group(1), StoredHardState(term))
        last_block = disk.size(PATH)
        states.flush()
    data = disk.inode(PATH).data
    data[position % len(data)] ^= 1 << bit
    if position % len(data) < last_block:
        with pytest.raises(StorageDamaged) as caught:
            HardStates.open(PATH, file_system=disk)
        assert caught.value.path == str(PATH)
    else:
        assert HardStates.open(PATH, file_system=disk).get(group(1)) == StoredHardState(4)
