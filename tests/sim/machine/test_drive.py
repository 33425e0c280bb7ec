"""The disk of a machine does exactly what the slower disk does that storage is tested with."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.sim.machine.drive import Drive
from tests.unit.storage.fault_file_system import FaultFileSystem

NAMES = ("a", "a-0", "b", "topic", "topic-1", "topic.log")
CHANGES = 120


def some_path(random: Random) -> Path:
    return Path("/", *random.choices(NAMES, k=random.randint(1, 3)))


def write(disk: FaultFileSystem, path: Path, random: Random) -> None:
    file = disk.create(path)
    file.pwrite(random.randbytes(random.randint(0, 20)), random.randint(0, 5))
    if random.random() < 0.5:
        file.sync()


def change(disk: FaultFileSystem, random: Random) -> object:
    """What came of it: an error is an outcome too."""
    path, other = some_path(random), some_path(random)
    changes: list[Callable[[], object]] = [
        lambda: disk.make_directory(path),
        lambda: write(disk, path, random),
        lambda: write(disk, path, random),
        lambda: disk.rename(path, other),
        lambda: disk.remove(path),
        lambda: disk.remove_tree(path),
        lambda: disk.sync_directory(path),
        lambda: disk.write_atomically(path, b"whole"),
    ]
    try:
        return random.choice(changes)()
    except OSError as error:
        return repr(error)


def found(disk: FaultFileSystem) -> list[tuple[Path, object]]:
    return [
        (path, None if inode is None else (inode.data, inode.durable, inode.pending))
        for path, inode in disk._entries.items()
    ]


def names_everywhere(disk: FaultFileSystem) -> dict[Path, list[str]]:
    return {path: disk.names(path) for path, inode in disk._entries.items() if inode is None}


@pytest.mark.parametrize("seed", range(60))
def test_it_is_equal_to_the_slow_disk_after_every_change(seed: int) -> None:
    fast, slow = Drive(), FaultFileSystem()
    fast_random, slow_random = Random(seed), Random(seed)
    for number in range(CHANGES):
        assert change(fast, fast_random) == change(slow, slow_random)
        assert found(fast) == found(slow)
        assert names_everywhere(fast) == names_everywhere(slow)
        if number % 10 == 0:
            assert found(fast.after_power_loss(number)) == found(slow.after_power_loss(number))
            assert found(fast.after_kill()) == found(slow.after_kill())
    assert fast.steps == slow.steps
