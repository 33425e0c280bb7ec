"""Indexes of closed segments that somebody read lately, in bounded memory."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock

from penstock.storage.offset_index import OffsetIndex


class IndexCache:
    """Forgets the index that was used least recently when they take too much memory."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        # Also for those who replace the indexes that a segment has in memory.
        self.lock = Lock()
        self._indexes: OrderedDict[Hashable, OffsetIndex] = OrderedDict()

    def get(self, owner: Hashable) -> OffsetIndex | None:
        with self.lock:
            index = self._indexes.get(owner)
            if index is not None:
                self._indexes.move_to_end(owner)
            return index

    def __contains__(self, owner: Hashable) -> bool:
        return owner in self._indexes

    def put(self, owner: Hashable, index: OffsetIndex) -> None:
        with self.lock:
            self._drop(owner)
            self._indexes[owner] = index
            self._bytes += index.memory_bytes
            while self._bytes > self._bytes_max and len(self._indexes) > 1:
                self._drop(next(iter(self._indexes)))

    def drop(self, owner: Hashable) -> None:
        with self.lock:
            self._drop(owner)

    def _drop(self, owner: Hashable) -> None:
        index = self._indexes.pop(owner, None)
        if index is not None:
            self._bytes -= index.memory_bytes
