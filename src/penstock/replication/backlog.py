"""The accepted bytes of one partition that are not safe yet, and when there are too many."""

from penstock.model.limits import MIB
from penstock.replication.pressure import Pressure

# Where there are followers doors pause for one partition at this much at the latest: it keeps all
# disks busy, and a follower is still sent from memory what was accepted before it could take it.
SHARED_CROWDED_BYTES_MAX = 16 * MIB


class Backlog:
    """Counts for one partition and, through the pressure, for the node."""

    __slots__ = ("_bytes_max", "_crowded_at", "_is_crowded", "_pressure", "size")

    def __init__(self, pressure: Pressure, bytes_max: int) -> None:
        self._pressure = pressure
        self._bytes_max = bytes_max
        # Beyond half of what it may hold, one partition alone makes doors pause.
        self._crowded_at = bytes_max // 2
        self._is_crowded = False
        self.size = 0

    def share(self) -> None:
        """There are followers from now on."""
        self._crowded_at = min(self._crowded_at, SHARED_CROWDED_BYTES_MAX)

    def has_room(self, size: int) -> bool:
        """A batch that is larger than the bound itself has room when it is alone."""
        fits = self.size + size <= self._bytes_max or not self.size
        return fits and self._pressure.has_room(size)

    def add(self, size: int) -> None:
        self.size += size
        self._pressure.add(size)
        if self.size > self._crowded_at and not self._is_crowded:
            self._is_crowded = True
            self._pressure.crowd()

    def remove(self, size: int) -> None:
        self.size -= size
        assert self.size >= 0
        if self._is_crowded and self.size <= self._crowded_at:
            self._is_crowded = False
            self._pressure.uncrowd()
        self._pressure.remove(size)
