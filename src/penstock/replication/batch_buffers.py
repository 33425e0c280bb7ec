"""Copies of batches that came from a client, which outlive the buffer that they came in.

Large ones share memory that is used again. Small batches do not have the cost of fresh memory: they
live in memory that the allocator keeps.
"""

from collections.abc import Iterator

from penstock.net.reusable_buffers import ReusableBuffers

LARGE_BYTES_MIN = 64 * 1024
KNOWN_BYTES_MAX = 48 * 1024 * 1024

Batch = bytes | bytearray | memoryview


class BatchBuffers:
    """Owned by the event loop; what it gave out may be let go of in any thread."""

    __slots__ = ("_memory",)

    def __init__(self, bytes_max: int = KNOWN_BYTES_MAX) -> None:
        self._memory = ReusableBuffers(bytes_max)

    def __iter__(self) -> Iterator[bytearray]:
        return iter(self._memory)

    def copy(self, batch: Batch) -> bytearray | memoryview:
        """A copy that may be changed, and kept for as long as anybody likes."""
        size = len(batch)
        if size < LARGE_BYTES_MIN:
            return bytearray(batch)
        view = memoryview(self._memory.take(size))[:size]
        view[:] = batch
        return view
