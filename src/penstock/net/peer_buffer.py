"""Bytes as they arrive from another node, cut in place into frames with a four-byte length.

It differs from a client's receive buffer in whom it trusts: room for a whole frame is made as soon
as its length is known, because it is a node of ours that announced it.
"""

from struct import Struct
from typing import Final

LENGTH: Final = Struct(">I")
CAPACITY: Final = 256 * 1024
# Beyond this, room that a large frame needed is given back once the frame is served.
CAPACITY_KEPT_MAX: Final = 16 * 1024 * 1024


class PeerFraming(Exception):
    """A frame was announced that is longer than any may be."""


class PeerBuffer:
    """`room` is filled from outside; `next_frame` empties it. Never resized but replaced, because
    views of frames may still exist."""

    __slots__ = ("_data", "_end", "_start", "_view", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._data = bytearray(CAPACITY)
        self._view = memoryview(self._data)
        # What arrived and was not taken yet lies between the two.
        self._start = 0
        self._end = 0

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._view[self._end :]

    def filled(self, count: int) -> None:
        self._end += count

    def take(self, count: int) -> bytes | None:
        """The next bytes, outside any frame, once they are here."""
        if self._end - self._start < count:
            return None
        self._start += count
        return bytes(self._view[self._start - count : self._start])

    def next_frame(self) -> memoryview | None:
        """The next whole frame, or None after making room for the rest of it."""
        left = self._end - self._start
        if left < LENGTH.size:
            self._make_room(LENGTH.size)
            return None
        length: int = LENGTH.unpack_from(self._data, self._start)[0]
        if length > self.frame_bytes_max:
            raise PeerFraming(f"a frame of {length} bytes was announced")
        size = LENGTH.size + length
        if left < size:
            self._make_room(size)
            return None
        body = self._start + LENGTH.size
        self._start += size
        return self._view[body : self._start]

    def _make_room(self, size: int) -> None:
        """Sees to it that `size` bytes fit from the start of what is here, and one more."""
        left = self._end - self._start
        capacity = len(self._data)
        wanted = max(CAPACITY, size)
        if wanted > capacity or (not left and capacity > CAPACITY_KEPT_MAX):
            self._replace(wanted)
        elif not left:
            self._start = self._end = 0
        elif self._start + size > capacity or self._end == capacity:
            self._view[:left] = self._view[self._start : self._end]
            self._start, self._end = 0, left

    def _replace(self, capacity: int) -> None:
        # Twice as much, so that the next large frame does not have to be moved again.
        data = bytearray(min(capacity * 2, LENGTH.size + self.frame_bytes_max))
        view = memoryview(data)
        left = self._end - self._start
        view[:left] = self._view[self._start : self._end]
        self._start, self._end = 0, left
        self._data, self._view = data, view
