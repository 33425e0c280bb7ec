"""The disk of a simulated machine: the fault-injecting one, with a process that dies with it."""

from collections.abc import Callable
from pathlib import Path
from random import Random

from penstock.storage.bad_tail import SECTOR_BYTES
from penstock.storage.layout import SEGMENT_SUFFIX
from tests.unit.storage.fault_file_system import FaultFileSystem, PowerLoss

# Whether a power loss may leave any of the sectors that were written since the last sync, and not
# only the first ones.
MIXES_SECTORS = True


def _nobody() -> None:
    """No process runs on the disk."""


class Drive(FaultFileSystem):
    """`steps_left` counts down to a death in the middle of a change; `on_death` hears of it."""

    def __init__(self, *, bytes_max: int | None = None) -> None:
        super().__init__(bytes_max=bytes_max)
        self.on_death: Callable[[], None] = _nobody
        # Whether it may hold what nobody wrote, or lack what it has promised to hold.
        self.is_damaged = False

    def die(self) -> None:
        self._is_dead = True
        self.on_death()
        raise PowerLoss

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong with it, and it takes what it is given."""
        return not (self.is_damaged or self.failing or self.bytes_max is not None)

    def stop(self) -> None:
        """The process that used it is gone; whatever of it is left can do nothing more."""
        self._is_dead = True

    def show(self, look: Callable[[], None]) -> None:
        """Lets somebody look at what a dead process saw."""
        is_dead, self._is_dead = self._is_dead, False
        look()
        self._is_dead = is_dead

    def reborn(self, random: Random, *, lost_power: bool) -> "Drive":
        """What the next process finds: everything written, or after a power loss less.

        What a killed process had not synced is there, and can still go with the power. So is what a
        failed sync lost, as long as the page cache keeps it.
        """
        drive = self._empty()
        if lost_power:
            found = self.after_power_loss(random.getrandbits(32))
            drive._entries, drive._durable = found._entries, found._durable
            drive.is_damaged = drive.is_damaged or self._seems_to_have_rotted(found)
        else:
            drive._entries, drive._durable = self._entries, self._durable
            drive._pending = self._pending
        return drive

    def _seems_to_have_rotted(self, found: FaultFileSystem) -> bool:
        """Whether a sector that was not written back lacks a single bit, so that nobody could tell
        the power loss from rot."""
        return any(
            _differs_in_one_bit(self.inode(path).data, found.inode(path).data)
            for path in self.files(SEGMENT_SUFFIX)
            if found.exists(path)
        )

    def after_power_loss(self, seed: int, *, in_order: bool | None = None) -> FaultFileSystem:
        if in_order is None and not MIXES_SECTORS:
            in_order = True
        return super().after_power_loss(seed, in_order=in_order)

    def _empty(self) -> "Drive":
        drive = Drive(bytes_max=self.bytes_max)
        drive.chance, drive.is_damaged = self.chance, self.is_damaged
        return drive

    def empty_out(self) -> None:
        """There is room again."""
        self.bytes_max = None

    def files(self, suffix: str = "") -> list[Path]:
        return [
            Path(path)
            for path, inode in sorted(self._entries.items())
            if inode is not None and path.endswith(suffix)
        ]

    def flip_bit(self, path: Path, random: Random) -> None:
        """What a disk may do to what it was given long ago."""
        self.is_damaged = True
        self.damage(path, random.randrange(len(self.inode(path).data)))


def _differs_in_one_bit(before: bytearray, after: bytearray) -> bool:
    """In any of their sectors."""
    for start in range(0, min(len(before), len(after)), SECTOR_BYTES):
        one, other = before[start : start + SECTOR_BYTES], after[start : start + SECTOR_BYTES]
        length = min(len(one), len(other))
        difference = int.from_bytes(one[:length]) ^ int.from_bytes(other[:length])
        if difference.bit_count() == 1:
            return True
    return False
