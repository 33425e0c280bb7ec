"""Memory for large batches on their way to the disk, used again once they are written.

Fresh memory for every batch of a megabyte would come from the operating system page by page and go
back there at once, which costs more than copying the batch. Small batches do not have that cost:
they live in memory that the allocator keeps.
"""

LARGE_BYTES_MIN = 64 * 1024
# Kept while nobody uses them: what a busy node has in flight, and no more.
KEPT_BYTES_MAX = 16 * 1024 * 1024
_GRAIN_BYTES = 64 * 1024

Batch = bytes | bytearray | memoryview


class BatchBuffers:
    """Owned by the event loop: it takes before a write job and gives back after it."""

    __slots__ = ("_free", "_free_bytes")

    def __init__(self) -> None:
        self._free: list[bytearray] = []
        self._free_bytes = 0

    def copy(self, batch: Batch) -> bytearray | memoryview:
        """A copy that may be changed; a large one is to be given back."""
        size = len(batch)
        if size < LARGE_BYTES_MIN:
            return bytearray(batch)
        view = memoryview(self._take(size))[:size]
        view[:] = batch
        return view

    def give_back(self, batches: list[Batch]) -> None:
        """Nobody may look at the batches after this."""
        for batch in batches:
            if type(batch) is memoryview:
                buffer = batch.obj
                assert isinstance(buffer, bytearray)
                batch.release()
                if self._free_bytes + len(buffer) <= KEPT_BYTES_MAX:
                    self._free.append(buffer)
                    self._free_bytes += len(buffer)

    def _take(self, size: int) -> bytearray:
        free = self._free
        # The newest first: it is most likely still in the processor's cache.
        for index in range(len(free) - 1, -1, -1):
            if len(free[index]) >= size:
                buffer = free.pop(index)
                self._free_bytes -= len(buffer)
                return buffer
        return bytearray(-(-size // _GRAIN_BYTES) * _GRAIN_BYTES)
