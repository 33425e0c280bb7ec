"""Snapshots: whole or not at all, and damage is named."""

from pathlib import Path

import pytest

from penstock.model.errors import StorageDamaged
from penstock.model.ids import Offset
from penstock.storage.snapshot import Snapshot, read_snapshot, write_snapshot
from tests.unit.storage.fault_file_system import FaultFileSystem, PowerLoss

PATH = Path("/state.snapshot")


def test_round_trip() -> None:
    disk = FaultFileSystem()
    assert read_snapshot(disk, PATH) is None
    write_snapshot(disk, PATH, Snapshot(b"state", Offset(42)))
    assert read_snapshot(disk, PATH) == Snapshot(b"state", Offset(42))


def test_a_crash_leaves_the_old_or_the_new() -> None:
    for steps in range(8):
        disk = FaultFileSystem()
        write_snapshot(disk, PATH, Snapshot(b"old", Offset(1)))
        disk.steps_left = steps
        try:
            write_snapshot(disk, PATH, Snapshot(b"new", Offset(2)))
        except PowerLoss:
            for survivor in (disk.after_kill(), disk.after_power_loss(steps)):
                assert read_snapshot(survivor, PATH) in [(b"old", 1), (b"new", 2)]


@pytest.mark.parametrize("position", [0, 5, 8, 17, 20, 27])
def test_damage_is_named(position: int) -> None:
    disk = FaultFileSystem()
    write_snapshot(disk, PATH, Snapshot(b"state", Offset(42)))
    disk.damage(PATH, position)
    with pytest.raises(StorageDamaged, match=str(PATH)):
        read_snapshot(disk, PATH)
