"""Memory for large blocks of bytes, used again once nobody looks at it any more.

Fresh memory for every block of a megabyte would come from the operating system page by page and go
back there at once, which costs more than copying the block.

Who is done with a block, the disk, the last follower or both, need not be told: a buffer that is
still looked at can't change its length, and that is how it is found out.
"""

from collections.abc import Iterator

_GRAIN_BYTES = 64 * 1024
# How many buffers that are in use are tried, of the newest and of the oldest.
_TRIES_MAX = 8


class ReusableBuffers:
    """Owned by the event loop; views of what it gave out may be let go of in any thread."""

    __slots__ = ("_bytes_max", "_known", "_known_bytes")

    def __init__(self, bytes_max: int) -> None:
        # Of what is known here, in use or not; beyond it the oldest are left to the allocator.
        self._bytes_max = bytes_max
        # The one that was used last is the last.
        self._known: list[bytearray] = []
        self._known_bytes = 0

    def __iter__(self) -> Iterator[bytearray]:
        return iter(self._known)

    def take(self, size: int) -> bytearray:
        """At least this many bytes, of any content; the caller's for as long as it has a view."""
        known = self._known
        position = self._find(size)
        if position is not None:
            known.append(known.pop(position))
            return known[-1]
        buffer = bytearray(-(-size // _GRAIN_BYTES) * _GRAIN_BYTES)
        known.append(buffer)
        self._known_bytes += len(buffer)
        while self._known_bytes > self._bytes_max:
            self._known_bytes -= len(known.pop(0))
        return buffer

    def _find(self, size: int) -> int | None:
        """The newest first: it is most likely still in the processor's cache. Where many are in
        use, the oldest are let go of first; trying all would take longer than fresh memory."""
        known = self._known
        for positions in (range(len(known) - 1, -1, -1), range(len(known))):
            tries = 0
            for position in positions:
                if len(known[position]) < size:
                    continue
                if _is_unused(known[position]):
                    return position
                tries += 1
                if tries == _TRIES_MAX:
                    break
            else:
                return None
        return None


def _is_unused(buffer: bytearray) -> bool:
    """A view of it keeps it from being resized. One byte less and one more moves no memory."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
